"""certus compare."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console

from certus.cli.progress import console, many_progress
from certus.cli.tables import cost_table, rich_table
from certus.cli.train import Given, typed_settings
from certus.errors import CertusError
from certus.experiments import compare
from certus.experiments.cells import Cell
from certus.methods import METHODS
from certus.training.stopping import Interrupted


def compare_command(args: Any, given: Given) -> int:
    cells = compare.comparison_cells(
        list(METHODS) if args.methods == "all" else [name for name in args.methods.split(",") if name],
        args.seeds,
        typed_settings(args.settings, given),
        typed_settings(args.options, given),
        args.epochs if "epochs" in given else None,
        args.out if "out" in given else None,
    )
    out = cells[0].folder.path.parent
    config, workers = cells[0].config, args.workers or compare.cores()
    console.print(
        f"{len(cells)} runs on {config.data}: {config.labels} labels, {config.steps} steps each, "
        f"{workers} at a time, in {out}",
        soft_wrap=True,
    )
    results, failures = run_with_progress(cells, workers)
    comparison, picture = compare.write_comparison(cells, results, out, typed_command())
    if args.json:
        print(json.dumps(comparison.as_dict()))
    else:
        Console().print(rich_table(comparison.table()))
        Console().print(cost_table(comparison))
        print(f"Results: {out / 'results.json'}, as a table in results.md")
        if picture:
            print(f"Picture: {picture}")
    return report_failures(failures)


def typed_command() -> str:
    return shlex.join(["certus", *sys.argv[1:]])


Results = dict[str, compare.Result]
Failures = dict[str, CertusError]


def run_with_progress(cells: Sequence[Cell], workers: int) -> tuple[Results, Failures]:
    """Train every cell that is not finished, with progress on the screen; results and failures by the cells' names."""
    with many_progress({c.name: (c.arm, c.config.steps) for c in cells}, workers) as progress:

        def on_end(cell: Cell, outcome: compare.Result | CertusError) -> None:
            if isinstance(outcome, CertusError):
                progress.finish(cell.name, f"failed: {outcome}")
            else:
                progress.finish(cell.name, f"done in {outcome['seconds']:.0f} s", outcome["seconds"])

        try:
            return compare.run_cells(cells, workers, lambda cell, tick: progress.tick(cell.name, tick), on_end)
        except Interrupted as e:
            raise Interrupted(f"{e} Continue with: {typed_command()}") from None


def report_failures(failures: Failures) -> int:
    """Print each failure; the exit code."""
    for name, reason in failures.items():
        print(f"certus: {name} failed: {reason}", file=sys.stderr)
    return 1 if failures else 0
