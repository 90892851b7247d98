"""The command line: typed and documented from frozen dataclasses, errors in one sentence."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import tyro
from tyro.conf import OmitArgPrefixes, Positional, arg

from certus.cli import command
from certus.cli.flags import given_flags, method_options, settings
from certus.errors import CertusError, unknown

if TYPE_CHECKING:
    TrainSettings: TypeAlias = Any
    PretrainSettings: TypeAlias = Any
    CompareSettings: TypeAlias = Any
    MethodOptions: TypeAlias = Any
else:
    TrainSettings = settings("Settings", "What is trained, on what, and how.")
    PretrainSettings = settings(
        "Settings",
        "What is looked at, and how.",
        skip=("method", "labels", "validation", "balanced", "label_noise", "init", "labelled_batch"),
    )
    CompareSettings = settings("Settings", "What every run has in common.", skip=("method", "seed", "threads", "steps"))
    MethodOptions = method_options()


@dataclass(frozen=True)
class Train:
    """Train one classifier. `certus train --data digits --method ft-ccl --labels 20` is a first try."""

    settings: OmitArgPrefixes[TrainSettings]
    options: OmitArgPrefixes[MethodOptions]
    epochs: Annotated[
        float,
        arg(
            help="passes over the unlabelled images, instead of --steps",
            help_behavior_hint="(default: by data set)",
        ),
    ] = 0.0
    minutes: Annotated[
        float,
        arg(
            help="train for about so long: the number of steps is fixed after timing a few, and written down",
            help_behavior_hint="",
        ),
    ] = 0.0
    out: Annotated[Path, arg(help="the run's folder", help_behavior_hint="(default: runs/…)")] = Path("runs")
    config: Annotated[
        Path, arg(help="take the settings of this run file; flags override them", help_behavior_hint="")
    ] = Path()
    resume: Annotated[
        Path, arg(help="go on with the run in this folder, to the same result", help_behavior_hint="")
    ] = Path()
    save_seconds: Annotated[float, arg(help="how often a checkpoint is written; 0: after every step")] = 30.0
    json: Annotated[bool, arg(help="print the result as JSON", help_behavior_hint="")] = False


@dataclass(frozen=True)
class Pretrain:
    """Learn what the images look like without any label, by telling how each was turned (RotNet).

    `certus train --init RUN` starts students from it: each has the trunk, and a head of its own."""

    settings: OmitArgPrefixes[PretrainSettings]
    epochs: Annotated[
        float, arg(help="passes over the images, instead of --steps", help_behavior_hint="(default: by data set)")
    ] = 0.0
    minutes: Annotated[float, arg(help="train for about so long", help_behavior_hint="")] = 0.0
    out: Annotated[Path, arg(help="the run's folder", help_behavior_hint="(default: runs/…)")] = Path("runs")
    save_seconds: Annotated[float, arg(help="how often a checkpoint is written; 0: after every step")] = 30.0
    json: Annotated[bool, arg(help="print the result as JSON", help_behavior_hint="")] = False


@dataclass(frozen=True)
class Compare:
    """Train several methods on the same few labels over several seeds, and print the table of test errors.

    Runs are trained side by side, one process per core. Stopped, the same command goes on where it was."""

    settings: OmitArgPrefixes[CompareSettings]
    options: OmitArgPrefixes[MethodOptions]
    methods: Annotated[str, arg(help="their names, with commas between; or all")] = "supervised,mean-teacher,ft-ccl"
    seeds: Annotated[int, arg(help="how many: 0, 1, … of these")] = 5
    epochs: Annotated[
        float, arg(help="passes over the unlabelled images", help_behavior_hint="(default: by data set)")
    ] = 0.0
    workers: Annotated[int, arg(help="processes side by side", help_behavior_hint="(default: one per core)")] = 0
    out: Annotated[Path, arg(help="the folder of the runs", help_behavior_hint="(default: runs/compare-…)")] = Path(
        "runs"
    )
    json: Annotated[bool, arg(help="print the results as JSON", help_behavior_hint="")] = False


@dataclass(frozen=True)
class Report:
    """Show what runs did and reached on one page: tables, learning curves, targets, certainty, calibration, mistakes.

    It reads run folders alone, finished or not, and needs nothing from elsewhere to be looked at."""

    runs: Annotated[Positional[tuple[Path, ...]], arg(help="folders of runs, or of comparisons", metavar="RUN…")] = ()
    out: Annotated[Path, arg(help="the page")] = Path("report.html")
    figures: Annotated[
        Path, arg(help="also write each figure as PNG, SVG and CSV into this folder", help_behavior_hint="")
    ] = Path()
    unlabelled: Annotated[
        bool,
        arg(help="first ask finished runs of their unlabelled images, for the paper's figure", help_behavior_hint=""),
    ] = False


@dataclass(frozen=True)
class Paper:
    """Run the paper's experiments: table1, uncertainty, selection, noise, ablation, views. Without a name, list them.

    At the end stands the table beside the paper's printed figures. Stopped, the same command goes on where it was."""

    experiment: Annotated[Positional[str], arg(help="its name", metavar="[EXPERIMENT]")] = ""
    scale: Annotated[
        str,
        arg(
            help="full: the paper's size, for a GPU; cpu: narrower and shorter, minutes per run on one core; "
            "cpu-short and cpu-long: for what length does",
            help_behavior_hint="(default: full with a GPU, else cpu)",
        ),
    ] = ""
    only: Annotated[
        str,
        arg(help="run only cells that fit: TASK, TASK/ARM or */ARM; * fits anything; several with ;"),
    ] = ""
    seeds: Annotated[int, arg(help="how many: 0, 1, … of these", help_behavior_hint="(default: full 5, else 3)")] = 0
    data_dir: Annotated[
        str, arg(help="where the files lie", help_behavior_hint="(default: $CERTUS_DATA or the user's cache)")
    ] = ""
    workers: Annotated[
        int, arg(help="processes side by side", help_behavior_hint="(default: one per core; with a GPU one)")
    ] = 0
    out: Annotated[Path, arg(help="the folder of the runs", help_behavior_hint="(default: runs/paper-SCALE)")] = Path(
        "runs"
    )
    publish: Annotated[
        Path,
        arg(help="also copy settings, metrics, results, tables and figures, but no weights", help_behavior_hint=""),
    ] = Path()
    finished: Annotated[
        bool, arg(help="train nothing: tables and figures of the runs that are finished", help_behavior_hint="")
    ] = False
    list: Annotated[bool, arg(help="name the cells and run nothing", help_behavior_hint="")] = False
    json: Annotated[bool, arg(help="print the results as JSON", help_behavior_hint="")] = False


@dataclass(frozen=True)
class Evaluate:
    """How good a run's answers are on test images: error, by class, NLL, Brier, calibration, what certainty is worth.

    Of several teachers the mean of their figures is told, never their ensemble's."""

    run: Annotated[Positional[Path], arg(help="the run's folder")]
    data: Annotated[str, arg(help="another data set or folder", help_behavior_hint="(default: the run's own)")] = ""
    data_dir: Annotated[str, arg(help="where its files lie", help_behavior_hint="")] = ""
    draws: Annotated[int, arg(help="Monte-Carlo draws that certainty is computed from")] = 10
    metric: Annotated[str, arg(help="what the most certain are chosen by")] = "pe"
    json: Annotated[bool, arg(help="print it as JSON", help_behavior_hint="")] = False


@dataclass(frozen=True)
class Predict:
    """Label pictures with a trained run, and say how certain each answer is.

    Several teachers answer with the mean of their probabilities."""

    run: Annotated[Positional[Path], arg(help="the run's folder")]
    pictures: Annotated[Positional[Path], arg(help="a folder of pictures, or one picture")]
    out: Annotated[Path, arg(help="where the answers go: .csv, .json or .parquet")] = Path("predictions.csv")
    top: Annotated[int, arg(help="how many classes are named for each picture")] = 1
    draws: Annotated[int, arg(help="Monte-Carlo draws that certainty is computed from; 0: none")] = 10
    metric: Annotated[str, arg(help="what the rank is by: pv, ev, pe, mi, pr or confidence")] = "pe"


@dataclass(frozen=True)
class Methods:
    """List the methods, each with its recipe, its options and where it comes from."""

    json: Annotated[bool, arg(help="print them as JSON", help_behavior_hint="")] = False


@dataclass(frozen=True)
class Data:
    """List the data sets; `certus data fetch NAME` downloads one."""

    action: Annotated[Positional[tuple[str, ...]], arg(help="nothing, or: fetch NAME", metavar="[fetch NAME]")] = ()
    data_dir: Annotated[
        str, arg(help="where the files lie", help_behavior_hint="(default: $CERTUS_DATA or the user's cache)")
    ] = ""
    json: Annotated[bool, arg(help="print them as JSON", help_behavior_hint="")] = False


COMMANDS: dict[str, Any] = {
    "train": Train,
    "pretrain": Pretrain,
    "compare": Compare,
    "report": Report,
    "paper": Paper,
    "evaluate": Evaluate,
    "predict": Predict,
    "methods": Methods,
    "data": Data,
}
DESCRIPTION = (
    "certus trains an image classifier from a few labels and many unlabelled images, and says how certain it is of "
    "every answer. Begin with: certus compare"
)


def run(argv: Sequence[str]) -> int:
    if argv and not argv[0].startswith("-"):
        if argv[0] not in COMMANDS:
            raise unknown("command", argv[0], COMMANDS)
        given = given_flags(COMMANDS[argv[0]], argv[1:])
    else:
        given = frozenset()
    args = tyro.extras.subcommand_cli_from_dict(
        COMMANDS, prog="certus", description=DESCRIPTION, args=list(argv) or ["--help"]
    )
    return command(type(args).__name__.lower())(args, given)


def main() -> None:
    try:
        code = run(sys.argv[1:])
    except CertusError as e:
        print(f"certus: {e}", file=sys.stderr)
        code = e.exit_code
    except KeyboardInterrupt:
        print("certus: stopped.", file=sys.stderr)
        code = 130
    except BrokenPipeError:  # whoever read our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except OSError as e:
        print(
            f"certus: {e.strerror or e}{f': {e.filename}' if e.filename else ''}. What was saved before is kept.",
            file=sys.stderr,
        )
        code = 1
    sys.exit(code)
