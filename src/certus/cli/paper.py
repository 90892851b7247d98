"""certus paper."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from certus import report
from certus.cli.compare import Failures, Results, run_cells, tell_failures
from certus.cli.flags import argument, flag
from certus.cli.progress import console
from certus.errors import UsageError
from certus.experiments import paper
from certus.experiments.compare import Cell, check
from certus.experiments.paper import tables
from certus.experiments.paper.publishing import publish
from certus.training.run_folder import put, put_json
from certus.training.unlabelled import answer_unlabelled


@dataclass(frozen=True)
class Options:
    """Repeat the paper's experiments.

    Without a name, certus paper lists them. At the end it shows the results beside the paper's printed numbers. If it
    is stopped, the same command goes on from there.
    """

    experiment: str | None = argument("[EXPERIMENT]", f"one of {', '.join(paper.EXPERIMENTS)}")
    scale: str | None = flag(
        "full: the paper's size, for a GPU; cpu: narrower and shorter, minutes per run on one core; cpu-short and "
        "cpu-long: the same with other lengths",
        None,
        "full with a GPU, else cpu",
    )
    only: str = flag(
        "run only the cells that match TASK, TASK/ARM or */ARM; * matches anything; several with ; between them", ""
    )
    seeds: int | None = flag("number of seeds, counted from 0", None, "full 5, else 3")
    data_dir: str = flag("folder of the data sets' files", "", "$CERTUS_DATA or the user's cache")
    workers: int | None = flag("runs trained at the same time", None, "one per core; with a GPU one")
    out: Path | None = flag("the folder of the runs", None, "runs/paper-SCALE")
    publish: Path | None = flag(
        "also copy settings, metrics, results, tables and figures into this folder, but no weights"
    )
    finished: bool = flag("train nothing: make tables and figures of the finished runs", False)
    list: bool = flag("print the names of the cells and run nothing", False)
    json: bool = flag("print the results as JSON", False)


def run(options: Options) -> int:
    if options.experiment is None:
        list_experiments()
        return 0
    what = paper.experiment(options.experiment)
    scale = paper.scale_named(options.scale or ("full" if torch.cuda.is_available() else "cpu"))
    chosen = paper.chosen(what, scale, options.only)
    if options.list:
        for task, arm in chosen:
            print(f"{task.name}/{arm.name}")
        return 0
    seeds = scale.seeds if options.seeds is None else options.seeds
    for name, number in (("seeds", seeds), ("workers", options.workers)):
        if number is not None and number < 1:
            raise UsageError(f"--{name} must be at least 1, but is {number}.")
    out = options.out or Path("runs") / f"paper-{scale.name}"
    workers = options.workers or (1 if torch.cuda.is_available() else len(os.sched_getaffinity(0)))
    cells = paper.cells(chosen, scale, seeds, out, options.data_dir)
    how = "those that are finished" if options.finished else f"{workers} at a time"
    console.print(f"{what.name}: {what.summary}. {len(cells)} runs, {how}, in {out}", soft_wrap=True)
    results: Results
    failed: Failures = {}
    if options.finished:
        for cell in cells:
            check(cell)
        results = {c.name: c.folder.load_result() for c in cells if c.folder.finished()}
        if not results:
            raise UsageError(f"None of these runs is finished in {out}: without --finished they are trained.")
    else:
        results, failed = run_in_order(paper.starts(chosen, scale, seeds, out, options.data_dir), cells, workers)
    finished = [cell for cell in cells if cell.name in results]
    if what.about == "uncertainty":
        for cell in finished:
            answer_unlabelled(cell.folder)
    only = f" --only {shlex.quote(options.only)}" if options.only else ""
    ready = " --finished" if options.finished else ""
    command = f"certus paper {what.name} --scale {scale.name}{only} --seeds {seeds}{ready}"
    summary = tables.summarise(what, scale, chosen, cells, results, command)
    show(summary, what, options.json)
    write(summary, what, finished, out / what.name)
    console.print(f"Tables, report and figures: {out / what.name}", soft_wrap=True)
    if options.publish is not None:
        publish(what, summary, finished, out / what.name, options.publish)
        console.print(f"What is small of it: {options.publish}", soft_wrap=True)
    return tell_failures(failed)


def run_in_order(before: Sequence[Cell], cells: Sequence[Cell], workers: int) -> tuple[Results, Failures]:
    """First what others start from; a start that fails ends it. What can be compared with each other comes first."""
    failed = run_cells(before, workers)[1] if before else {}
    if failed:
        return {}, failed
    return run_cells(sorted(cells, key=lambda cell: cell.config.seed), workers)


def list_experiments() -> None:
    table = Table(title="the paper's experiments", caption=f"certus paper NAME --scale {'|'.join(paper.SCALES)}")
    for column in ("name", "what it shows", "tasks", "arms"):
        table.add_column(column)
    for e in paper.EXPERIMENTS.values():
        table.add_row(e.name, e.summary, ", ".join(t.name for t in e.tasks), str(len(e.arms)))
    Console().print(table)


def show(summary: dict[str, Any], what: paper.Experiment, as_json: bool) -> None:
    if as_json:
        print(json.dumps(summary))
        return
    page = Console(width=None if sys.stdout.isatty() else 160)  # a file has no edge to wrap at
    for name, found in summary["tasks"].items():
        for title, heads, rows in tables.sections(found, what.references):
            paired = "; differences paired by seed, [95 % interval]" if any("difference" in h for h in heads) else ""
            table = Table(title=f"{name}: {title}", caption=f"means over n seeds, ± standard deviation{paired}")
            for i, head in enumerate(heads):
                table.add_column(head, justify="right" if i else "left")
            for row in rows:
                table.add_row(*row)
            page.print(table)
        print(f"{name}: {found['words']}\n")
    print(summary["words"])


def write(summary: dict[str, Any], what: paper.Experiment, finished: Sequence[Cell], out: Path) -> None:
    """results.json, results.md, and for each data set and number of labels a report with its figures."""
    out.mkdir(parents=True, exist_ok=True)
    put_json(out / "results.json", summary)
    put(out / "results.md", tables.markdown(what, summary))
    groups: dict[str, list[Path]] = {}
    for cell in finished:
        groups.setdefault(f"{cell.config.data}-{cell.config.labels}", []).append(cell.folder.path)
    for name, folders in groups.items():
        shutil.rmtree(out / name / "figures", ignore_errors=True)
        report.write(folders, out / name / "report.html", out / name / "figures")
