"""certus compare."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from certus.cli.flags import flag, flag_names, many, with_flags
from certus.cli.progress import console, many_progress
from certus.cli.screen import screen
from certus.cli.settings import config_flags, option_flags
from certus.cli.tables import cost_table, rich_table
from certus.errors import CertusError, Interrupted, UsageError
from certus.experiments import compare
from certus.experiments.cells import Cell
from certus.experiments.pool import LOCAL, cores
from certus.methods import METHODS

COMPARISON = "comparison"
ON = (
    "where: local; ray: the cluster in $RAY_ADDRESS, or a new one on this machine; auto: the cluster that this machine "
    "belongs to; or the address of a Ray cluster, HOST:PORT"
)
Results = dict[str, compare.Result]
Failures = dict[str, CertusError]


@dataclass(frozen=True)
class Options:
    """Train several methods over several seeds and print the table of their errors.

    All runs with the same seed see the same labels. Several runs are trained at the same time, one process each. If
    it is stopped, the same command goes on from there.

    The methods' own options are flags too: certus methods NAME lists them. Each goes to the methods that have it.
    """

    methods: str = flag(
        "the methods' names, with commas between them; or all", "supervised,mean-teacher,ft-ccl", group=COMPARISON
    )
    seeds: int = flag("number of seeds, counted from 0", 5, group=COMPARISON)
    epochs: float | None = flag("passes over the unlabelled images", None, "by data set", COMPARISON)
    minutes: float | None = flag(
        "train each run for so many minutes of one core: every method gets the same time", group=COMPARISON
    )
    workers: int | None = flag("runs trained at the same time", None, "one per core", COMPARISON)
    on: str = flag(ON, LOCAL, group=COMPARISON)
    out: Path | None = flag("the folder of the runs", None, "runs/compare-…", COMPARISON)
    json: bool = flag("print the results as JSON", False, group=COMPARISON)
    settings: Mapping[str, Any] = many(config_flags("method", "seed", "threads", "steps", "from_"))
    method_options: Mapping[str, Any] = many(option_flags())


def run(options: Options) -> int:
    if options.workers is not None and options.workers < 1:
        raise UsageError(f"--workers must be at least 1, but is {options.workers}.")
    names = list(METHODS) if options.methods == "all" else [name for name in options.methods.split(",") if name]
    cells = compare.comparison_cells(
        names,
        options.seeds,
        options.settings,
        options.method_options,
        options.epochs,
        options.out,
        options.minutes,
        tell_timing,
    )
    out = cells[0].folder.path.parent
    config = cells[0].config
    console.print(
        f"{len(cells)} runs on {config.data}: {config.labels} labels, {lengths(cells, options.minutes)}, "
        f"{at_a_time(options.on, options.workers)}, in {out}",
        soft_wrap=True,
    )
    results, failures = run_with_progress(cells, options.workers, options.on)
    comparison, picture = compare.write_comparison(cells, results, out, typed_command())
    if options.json:
        print(json.dumps(comparison.as_dict()))
    else:
        screen().print(rich_table(comparison.table()))
        screen().print(cost_table(comparison))
        print(f"Results: {out / 'results.json'}, as a table in results.md")
        if picture:
            print(f"Picture: {picture}")
    return report_failures(failures)


def tell_timing(name: str) -> None:
    console.print(f"Timing a few steps of {name}", soft_wrap=True)


def lengths(cells: Sequence[Cell], minutes: float | None) -> str:
    """How long each run is."""
    steps = {cell.arm: cell.config.steps for cell in cells}
    if minutes is None:
        return f"{cells[0].config.steps} steps each"
    each = ", ".join(f"{arm} {count:,}" for arm, count in steps.items())
    return f"{minutes:g} minute{'s' * (minutes != 1)} of one core each (steps: {each})"


def typed_command() -> str:
    return shlex.join(["certus", *sys.argv[1:]])


def at_a_time(on: str, workers: int | None) -> str:
    """How many runs are trained at the same time, and where."""
    number = f"{workers or cores()} at a time" if workers or on == LOCAL else "as many at a time as there is room for"
    return number if on == LOCAL else f"{number}, on {on}"


def run_with_progress(cells: Sequence[Cell], workers: int | None, on: str = LOCAL) -> tuple[Results, Failures]:
    """Train every cell that is not finished, with progress on the screen; results and failures by the cells' names."""
    number = workers or (cores() if on == LOCAL else 1)
    with many_progress({c.name: (c.arm, c.config.steps) for c in cells}, number) as progress:

        def on_end(cell: Cell, outcome: compare.Result | CertusError) -> None:
            if isinstance(outcome, CertusError):
                progress.finish(cell.name, f"failed: {sentence(outcome)}")
            else:
                progress.finish(cell.name, f"done in {outcome['seconds']:.0f} s", outcome["seconds"])

        try:
            return compare.run_cells(cells, workers or 0, lambda cell, tick: progress.tick(cell.name, tick), on_end, on)
        except Interrupted as e:
            raise Interrupted(f"{e} Go on with: {typed_command()}") from None


def report_failures(failures: Failures) -> int:
    """Print each failure; the exit code."""
    for name, reason in failures.items():
        print(f"certus: {name} failed: {sentence(reason)}", file=sys.stderr)
    return 1 if failures else 0


def sentence(error: CertusError) -> str:
    """The text of a run's error, with the names of settings as flags."""
    return with_flags(str(error), {*flag_names(Options), "resume"})
