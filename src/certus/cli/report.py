"""certus report."""

from __future__ import annotations

from typing import Any

from certus.cli.train import Given
from certus.errors import UsageError
from certus.methods import METHODS
from certus.report.report import write_report
from certus.report.runs import find
from certus.training.unlabelled import answer_unlabelled


def report_command(args: Any, given: Given) -> int:
    if not args.runs:
        raise UsageError("certus report needs the folder of a run, or of a comparison.")
    folder = args.figures if "figures" in given else None
    if args.unlabelled:
        for run in find(args.runs):
            if run.result is not None and run.config.method in METHODS:
                answer_unlabelled(run.folder)
    done = write_report(args.runs, args.out, folder)
    unfinished = "" if done.finished == done.runs else f" ({done.finished} finished)"
    print(f"{done.runs} run{'s' * (done.runs != 1)}{unfinished}, {len(done.figures)} figures: {args.out}")
    if folder is not None:
        print(f"Each as PNG, SVG and CSV: {folder}")
    return 0
