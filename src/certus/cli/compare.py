"""certus compare."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from certus.cli.flags import flag, flag_names, many, spelled, with_flags
from certus.cli.progress import console, many_progress
from certus.cli.settings import config_flags, option_flags
from certus.config import Config, resolve
from certus.data import load
from certus.errors import CertusError, UsageError
from certus.experiments import compare
from certus.methods import METHODS, recipe
from certus.methods.recipe import shown
from certus.report import overview
from certus.report.statistics import difference_text, mean_text
from certus.training.planning import complete
from certus.training.run_folder import RunFolder, put, put_json
from certus.training.stopping import Interrupted

COMPARISON = "comparison"


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
    workers: int | None = flag("runs trained at the same time", None, "one per core", COMPARISON)
    out: Path | None = flag("the folder of the runs", None, "runs/compare-…", COMPARISON)
    json: bool = flag("print the results as JSON", False, group=COMPARISON)
    settings: Mapping[str, Any] = many(config_flags("method", "seed", "threads", "steps"))
    method_options: Mapping[str, Any] = many(option_flags())


def run(options: Options) -> int:
    names = list(METHODS) if options.methods == "all" else [m for m in options.methods.split(",") if m]
    if not names or len(set(names)) < len(names):
        raise UsageError(f"--methods must name each method once, with commas between, but is {options.methods!r}.")
    for name, number in (("seeds", options.seeds), ("workers", options.workers)):
        if number is not None and number < 1:
            raise UsageError(f"--{name} must be at least 1, but is {number}.")
    if options.epochs is not None and not options.epochs > 0:
        raise UsageError(f"--epochs must be more than 0, but is {options.epochs:g}.")
    recipes = [recipe(name) for name in names]
    for option in options.method_options:
        if not any(option in r.defaults() for r in recipes):
            raise UsageError(f"None of {', '.join(names)} has an option {spelled(option)}.")
    out = options.out
    cells = []
    configs: dict[str, Config] = {}
    for seed in range(options.seeds):
        for known in recipes:
            own = {o: v for o, v in options.method_options.items() if o in known.defaults()}
            if known.name not in configs:
                config = resolve({**options.settings, "method": known.name, "threads": 1, "options": own})
                configs[known.name] = complete(config, options.epochs)
            config = replace(configs[known.name], seed=seed)
            out = out or Path("runs") / f"compare-{Path(config.data).name}-{config.labels}"
            folder = compare.cell_folder(out, known.name, seed)
            cells.append(compare.Cell(folder.path.name, known.name, config, folder))
    assert out is not None
    return run_comparison(cells, out, options.workers or len(os.sched_getaffinity(0)), options.json)


def run_comparison(cells: list[compare.Cell], out: Path, workers: int, as_json: bool) -> int:
    config = cells[0].config
    console.print(
        f"{len(cells)} runs on {config.data}: {config.labels} labels, {config.steps} steps each, "
        f"{workers} at a time, in {out}",
        soft_wrap=True,
    )
    results, failed = run_cells(cells, workers)
    summary = compare.summarise(cells, results)
    put_json(out / "results.json", summary)
    put(out / "results.md", compare.markdown(summary, shlex.join(["certus", *sys.argv[1:]])))
    picture = out / "comparison.png"
    runs: dict[str, list[RunFolder]] = {}
    for cell in cells:
        runs.setdefault(cell.arm, [])
        if cell.name in results:
            runs[cell.arm].append(cell.folder)
    if results:
        overview.comparison(summary, runs, load(config.data, config.data_dir, config.size), picture)
    if as_json:
        print(json.dumps(summary))
    else:
        Console().print(comparison_table(summary))
        Console().print(cost_table(summary))
        print(f"Results: {out / 'results.json'}, as a table in results.md")
        if results:
            print(f"Picture: {picture}")
    return tell_failures(failed)


Results = dict[str, dict[str, Any]]
Failures = dict[str, CertusError]


def run_cells(cells: Sequence[compare.Cell], workers: int) -> tuple[Results, Failures]:
    """Train what is not finished, with progress over the whole; results and failures by the cells' names."""
    for cell in cells:
        compare.check(cell)
    failed: Failures = {}
    with many_progress({c.name: (c.arm, c.config.steps) for c in cells}, workers) as progress:

        def done(cell: compare.Cell, outcome: dict[str, Any] | CertusError) -> None:
            if isinstance(outcome, CertusError):
                failed[cell.name] = outcome
                progress.finish(cell.name, f"failed: {sentence(outcome)}")
            else:
                progress.finish(cell.name, f"done in {outcome['seconds']:.0f} s", outcome["seconds"])

        try:
            results = compare.run_all(cells, workers, lambda c, tick: progress.tick(c.name, tick), done)
        except Interrupted as e:
            raise Interrupted(f"{e} Go on with: {shlex.join(['certus', *sys.argv[1:]])}") from None
    return results, failed


def tell_failures(failed: Failures) -> int:
    for name, reason in failed.items():
        print(f"certus: {name} failed: {sentence(reason)}", file=sys.stderr)
    return 1 if failed else 0


def sentence(error: CertusError) -> str:
    """The text of a run's error, with the names of settings as flags."""
    return with_flags(str(error), flag_names(Options))


def comparison_table(summary: Mapping[str, Any]) -> Table:
    table = Table(
        title=f"{summary['data']}, {summary['labels']} labels: test error (%)",
        caption="± standard deviation over seeds; the difference is paired by seed, with a 95 % confidence interval",
    )
    table.add_column("method")
    for column in ("mean ± std", "n", f"difference to {summary['reference']}"):
        table.add_column(column, justify="right", no_wrap=True)
    for method, v in summary["methods"].items():
        if not v["n"]:
            table.add_row(method, "failed", "0")
            continue
        table.add_row(method, mean_text(v), str(v["n"]), difference_text(v["difference"]))
    return table


def cost_table(summary: Mapping[str, Any]) -> Table:
    """What a training step of each method takes, and its constants."""
    measure = summary["cost_reference"]
    table = Table(title="a training step", caption=f"×: time and memory relative to {measure}")
    table.add_column("method")
    for column in ("ms", "×", "MB", "×"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("constants")
    unit = summary["methods"][measure]
    for method, v in summary["methods"].items():
        if not v["n"]:
            continue
        time, memory = v["seconds_per_step"], v["bytes"]
        table.add_row(
            *(method, f"{1000 * time:.1f}", f"{time / unit['seconds_per_step']:.2f}" if unit["n"] else ""),
            *(f"{memory / 1e6:.1f}", f"{memory / unit['bytes']:.2f}" if unit["n"] and unit["bytes"] else ""),
            ", ".join(f"{o.replace('_', ' ')} {shown(value)}" for o, value in v["options"].items()),
        )
    return table
