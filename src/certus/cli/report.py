"""certus report."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from certus.cli.flags import argument, flag, with_flags
from certus.errors import UsageError
from certus.methods import METHODS
from certus.report.report import write_report
from certus.report.runs import find, readable
from certus.training.unlabelled import answer_unlabelled


@dataclass(frozen=True)
class Options:
    """Show runs on one page: tables, curves, certainty, mistakes.

    The page is made from the run folders alone. Runs that are not finished are shown too. The page needs no other
    files and no network.
    """

    runs: tuple[Path, ...] = argument("RUN...", "folders of runs, or of comparisons", ())
    out: Path = flag("the page", Path("report.html"))
    figures: Path | None = flag("also write each figure as PNG, SVG and CSV into this folder")
    unlabelled: bool = flag(
        "first let every finished run answer its unlabelled images, for the paper's figure of accuracy against "
        "uncertainty",
        False,
    )


def run(options: Options) -> int:
    if not options.runs:
        raise UsageError("certus report needs the folder of a run, or of a comparison.")
    if options.unlabelled:
        for found in readable(find(options.runs))[0]:
            if found.result is not None and found.config.method in METHODS:
                answer_unlabelled(found.folder)
    done = write_report(options.runs, options.out, options.figures)
    unfinished = "" if done.finished == done.runs else f" ({done.finished} finished)"
    print(f"{done.runs} run{'s' * (done.runs != 1)}{unfinished}, {len(done.figures)} figures: {options.out}")
    if options.figures is not None:
        print(f"Each as PNG, SVG and CSV: {options.figures}")
    for note in done.notes:
        print(f"certus: {note}", file=sys.stderr)
    for path, reason in done.failures.items():
        print(f"certus: {path} is left out: {with_flags(str(reason), ('resume', 'unlabelled'))}", file=sys.stderr)
    return 1 if done.failures else 0
