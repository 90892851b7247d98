"""certus compare."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from certus.cli.progress import console, many_progress
from certus.cli.train import Given, typed_settings
from certus.config import Config, resolve
from certus.data import load
from certus.errors import CertusError, UsageError
from certus.experiments import compare
from certus.methods import METHODS, recipe
from certus.methods.recipe import flag, shown
from certus.report import overview
from certus.report.statistics import difference_text, mean_text
from certus.training.planning import complete
from certus.training.run_folder import RunFolder, put, put_json
from certus.training.stopping import Interrupted


def compare_command(args: Any, given: Given) -> int:
    names = list(METHODS) if args.methods == "all" else [m for m in args.methods.split(",") if m]
    if not names or len(set(names)) < len(names):
        raise UsageError(f"--methods must name each method once, with commas between, but is {args.methods!r}.")
    if args.seeds < 1:
        raise UsageError(f"--seeds must be at least 1, but is {args.seeds}.")
    if args.workers < 0:
        raise UsageError(f"--workers must be at least 1, but is {args.workers}.")
    if "epochs" in given and not args.epochs > 0:
        raise UsageError(f"--epochs must be more than 0, but is {args.epochs:g}.")
    common, options = typed_settings(args.settings, given), typed_settings(args.options, given)
    recipes = [recipe(name) for name in names]
    for option in options:
        if not any(option in r.defaults() for r in recipes):
            raise UsageError(f"None of {', '.join(names)} has an option {flag(option)}.")
    out = args.out if "out" in given else None
    cells = []
    configs: dict[str, Config] = {}
    for seed in range(args.seeds):
        for known in recipes:
            own = {o: v for o, v in options.items() if o in known.defaults()}
            if known.name not in configs:
                config = resolve({**common, "method": known.name, "threads": 1, "options": own})
                configs[known.name] = complete(config, args.epochs if "epochs" in given else None)
            config = replace(configs[known.name], seed=seed)
            out = out or Path("runs") / f"compare-{Path(config.data).name}-{config.labels}"
            folder = compare.cell_folder(out, known.name, seed)
            cells.append(compare.Cell(folder.path.name, known.name, config, folder))
    assert out is not None
    return run_comparison(cells, out, args.workers or len(os.sched_getaffinity(0)), args.json)


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
                progress.finish(cell.name, f"failed: {outcome}")
            else:
                progress.finish(cell.name, f"done in {outcome['seconds']:.0f} s", outcome["seconds"])

        try:
            results = compare.run_all(cells, workers, lambda c, tick: progress.tick(c.name, tick), done)
        except Interrupted as e:
            raise Interrupted(f"{e} Go on with: {shlex.join(['certus', *sys.argv[1:]])}") from None
    return results, failed


def tell_failures(failed: Failures) -> int:
    for name, reason in failed.items():
        print(f"certus: {name} failed: {reason}", file=sys.stderr)
    return 1 if failed else 0


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
