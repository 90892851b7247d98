"""certus export: a run for other programs, checked against its own answers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from certus.cli.flags import argument, flag
from certus.errors import UsageError
from certus.export import FORMATS, Exported, export
from certus.export.agreement import RANKS, TOLERANCE


@dataclass(frozen=True)
class Options:
    """Write a run as one file that answers without certus.

    The file takes pictures of any size and gives labels, probabilities and certainty. Before it is written, its answers
    to a hundred pictures are compared with those of certus.
    """

    run: Path | None = argument("RUN", "the run's folder")
    out: Path | None = flag("the file to write; a folder for huggingface", None, "RUN.onnx, RUN.pt2 or RUN-huggingface")
    format: str = flag(f"{', '.join(FORMATS)}", "onnx")
    draws: int = flag("Monte-Carlo draws in the file from which certainty is computed; 0: none", 10)
    int8: bool = flag("store the weights in 8 bits, and print what that loses (onnx)", False)


def run(options: Options) -> int:
    if options.run is None:
        raise UsageError("certus export needs the folder of a run.")
    ending = FORMATS.get(options.format, "") or f"-{options.format}"
    out = options.out or options.run.with_name(options.run.resolve().name + ending)
    show(export(options.run, out, format=options.format, draws=options.draws, int8=options.int8))
    return 0


def show(made: Exported) -> None:
    if found := made.agreement:
        print(f"{found.pictures} pictures {found.source}, answered by the file and by certus:")
        print(f"  probabilities differ by {found.probability:.1g} at most (accepted: {TOLERANCE:g}), labels never")
        if found.other_size is not None:
            print(f"  pictures of another size: by {found.other_size:.1g}")
        ranks = ", ".join(f"{name} {value:.4f}" for name, value in found.ranks.items())
        print(f"  ranks by uncertainty (Spearman, the same masks): {ranks}; accepted: {RANKS:g} of {found.metric}")
        print(
            f"  ranks by {found.metric} with certus's own draws: {found.own_draws:.4f} "
            f"(two seeds of certus: {found.two_seeds:.4f})"
        )
    if made.lost:
        worst, labels = made.lost
        print(f"  weights of 8 bits: probabilities differ by {worst:.2g} at most, {labels} labels are others")
    print(f"{made.path}: {made.bytes / 1e6:.1f} MB")
