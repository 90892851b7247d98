"""Several methods on the same few labels, over seeds: the runs of a comparison, training them, and the results.

cells = comparison_cells(["supervised", "ft-ccl"], seeds=5, settings={"data": "digits", "labels": 20})
results, failures = run_cells(cells, workers=2)
comparison, picture = write_comparison(cells, results, Path("demo"))
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from certus.config import Config, decide, resolve
from certus.errors import CertusError, UsageError
from certus.experiments.cells import Cell, Results, cell_folder, finished_cells
from certus.experiments.plan import PLANNING, Plan
from certus.experiments.pool import LOCAL, Event, Patient, Pool, cores, open_pool
from certus.methods import recipe
from certus.methods.options import at_least
from certus.report.comparisons import compare_results
from certus.report.overview import draw_comparison
from certus.report.runs import Arm, RunRecord
from certus.report.statistics import Comparison
from certus.training.lock import locked
from certus.training.loop import Tick
from certus.training.planning import check_length, complete, data_of
from certus.training.stopping import stop_signal
from certus.writing import put, put_json

MOST_SEEDS = 10_000
notices = logging.getLogger("certus")
Result = dict[str, Any]  # what result.json holds
OnTick = Callable[[Cell, Tick], None]
OnEnd = Callable[[Cell, Result | CertusError], None]
OnTiming = Callable[[str], None]


def ignore(*_: object) -> None:
    """A listener that does nothing."""


def comparison_cells(
    methods: Sequence[str],
    seeds: int = 5,
    settings: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    epochs: float | None = None,
    out: Path | None = None,
    minutes: float | None = None,
    on_timing: OnTiming = ignore,
) -> list[Cell]:
    """Every method at every seed: at one seed all methods have the same labels.

    Args:
        methods: their names
        seeds: how many; the seeds are 0, 1, …
        settings: of every run (`data`, `labels`, `width`, …), those that are not the defaults
        options: of the methods; each method gets those that it has
        epochs: passes over the unlabelled images, instead of `steps` among the settings
        out: the folder of the runs; by default runs/compare-DATA-LABELS, with minutes runs/compare-DATA-LABELS-Mmin
        minutes: of one core for each run, instead of `epochs` or `steps`. A few steps of each method are timed once,
            which is not part of them; the number that fits is kept in plan.json and is the same for every seed.
        on_timing: called with the name of each method that is timed
    """
    if not methods or len(set(methods)) < len(methods):
        raise UsageError(f"`methods` must name each method once, but is {', '.join(methods) or 'empty'}.")
    at_least(1, MOST_SEEDS)("seeds", seeds)
    check_length((settings or {}).get("steps") or None, epochs, minutes)
    recipes = [recipe(name) for name in methods]
    for option in options or {}:
        if not any(option in known.defaults() for known in recipes):
            raise UsageError(f"None of {', '.join(methods)} has an option `{option}`.")
    configs = []
    for known in recipes:
        own = {name: value for name, value in (options or {}).items() if name in known.defaults()}
        given = {**(settings or {}), "method": known.name, "threads": 1, "options": own}
        configs.append(resolve(given))
    length = "" if minutes is None else f"{minutes:g}min"
    if out is None:
        first = decide(configs[0], data_of(configs[0]))
        name = "-".join(filter(None, ("compare", Path(first.data).name, str(first.labels), length)))
        out = Path("runs") / name
    if minutes is None:
        configs = [complete(config, epochs) for config in configs]
    else:
        configs = planned(configs, out, minutes, settings or {}, on_timing)
    cells = []
    for seed in range(seeds):
        for config in configs:
            folder = cell_folder(out, config.method, seed)
            cells.append(Cell(folder.path.name, config.method, replace(config, seed=seed), folder))
    return cells


def planned(
    configs: Sequence[Config], out: Path, minutes: float, settings: Mapping[str, Any], on_timing: OnTiming
) -> list[Config]:
    """With as many steps as fit into the minutes. Other settings in the same folder are timed anew."""
    given = [f"{name}={settings[name]}" for name in sorted(settings)]
    with locked(out, PLANNING):  # another process may be timing the same methods
        plan = Plan(out, f"{minutes:g} minutes a run", listen=lambda name: on_timing(name.partition(" ")[0]))
        return [
            plan.complete(" ".join((c.method, *given, *(f"{k}={v}" for k, v in c.options.items()))), c, lambda: minutes)
            for c in configs
        ]


def run_cells(
    cells: Sequence[Cell], workers: int = 0, on_tick: OnTick = ignore, on_end: OnEnd = ignore, on: str = LOCAL
) -> tuple[dict[str, Result], dict[str, CertusError]]:
    """Train every cell that is not finished; results and failures by the cells' names.

    Several processes, also of several machines that share the folder, may do this at once: each cell is trained by the
    one that locks its folder first, and all of them get its result.

    Args:
        cells: a finished cell is read, a stopped one is continued
        workers: cells that are trained side by side; 0: one per core
        on_tick: called after some steps of each run
        on_end: called with the result of each run, or with the error that ended it
        on: where: `local`, `ray`, `auto` or the address of a Ray cluster
    """
    results, failures = finished_cells(cells)
    waiting = []
    for cell in cells:
        if outcome := results.get(cell.name) or failures.get(cell.name):
            on_end(cell, outcome)
        else:
            waiting.append(cell)
    if not waiting:
        return results, failures
    by_name = {cell.name: cell for cell in cells}
    size = min(workers or (cores() if on == LOCAL else 0), len(waiting))
    pool = open_pool(on, size, common_folder(waiting), waiting[0].config.device)
    with stop_signal((signal.SIGINT, signal.SIGTERM)) as stopped, pool:
        for kind, name, value in events_of(waiting, pool, stopped):
            if kind == "tick":
                on_tick(by_name[name], value)
                continue
            (results if kind == "result" else failures)[name] = value
            on_end(by_name[name], value)
    return results, failures


def events_of(cells: Sequence[Cell], pool: Pool, stopped: threading.Event) -> Iterator[Event]:
    """Until each cell has a result or has failed, or until `stopped` is set."""
    patient, told = Patient(pool), False
    for cell in cells:
        patient.put(cell)
    while patient.cells:
        if len(patient.again) == len(patient.cells) and not told:
            names = ", ".join(patient.again)
            notices.warning("Waiting for %d runs that other processes train: %s.", len(patient.again), names)
            told = True
        if event := patient.event(stopped):
            yield event


def common_folder(cells: Sequence[Cell]) -> Path:
    return Path(os.path.commonpath([cell.folder.path.absolute().parent for cell in cells]))


def by_arm(cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    """In the order of their first cells."""
    found: dict[str, list[Cell]] = {}
    for cell in cells:
        found.setdefault(cell.arm, []).append(cell)
    return found


def finished_arms(cells: Sequence[Cell], results: Results) -> list[Arm]:
    """The arms that have a result, each with its finished runs."""
    finished = [cell for cell in cells if cell.name in results]
    return [Arm(name, tuple(RunRecord(c.folder, c.config) for c in group)) for name, group in by_arm(finished).items()]


def compare_cells(cells: Sequence[Cell], results: Results) -> Comparison:
    """Of one task; an arm without a result is a row without errors."""
    return compare_results(
        {
            name: (group[0].config, {c.config.seed: results[c.name] for c in group if c.name in results})
            for name, group in by_arm(cells).items()
        }
    )


def write_comparison(
    cells: Sequence[Cell], results: Results, out: Path, command: str = ""
) -> tuple[Comparison, Path | None]:
    """Write results.json, results.md (with the command that made them) and, if there is a result, comparison.png.

    Returns the comparison and the path of the picture.
    """
    comparison = compare_cells(cells, results)
    out.mkdir(parents=True, exist_ok=True)
    put_json(out / "results.json", comparison.as_dict())
    head = f"`{command}`\n\n" if command else ""
    put(out / "results.md", head + comparison.table(cost=True).markdown())
    if not results:
        return comparison, None
    draw_comparison(comparison, finished_arms(cells, results), out / "comparison.png")
    return comparison, out / "comparison.png"
