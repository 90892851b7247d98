"""certus paper."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from certus.cli.compare import Failures, Results, report_failures, run_with_progress
from certus.cli.progress import console
from certus.cli.tables import print_table
from certus.cli.train import Given
from certus.errors import UsageError
from certus.experiments import paper
from certus.experiments.cells import Cell, check_folder
from certus.experiments.compare import cores
from certus.experiments.paper import tables
from certus.experiments.paper.publishing import publish, published
from certus.experiments.paper.recording import records_of
from certus.experiments.paper.records import Records
from certus.report.report import write_report
from certus.training.run_folder import put, put_json
from certus.training.unlabelled import answer_unlabelled


def paper_command(args: Any, given: Given) -> int:
    if not args.experiment:
        list_experiments()
        return 0
    experiment = paper.experiment(args.experiment)
    scale = paper.scale_named(args.scale if "scale" in given else "full" if torch.cuda.is_available() else "cpu")
    chosen = paper.chosen(experiment, scale, args.only)
    if args.list:
        for task, arm in chosen:
            print(f"{task.name}/{arm.name}")
        return 0
    seeds = args.seeds if "seeds" in given else scale.seeds
    for name, number in (("seeds", seeds), ("workers", args.workers if "workers" in given else 1)):
        if number < 1:
            raise UsageError(f"`{name}` must be at least 1, but is {number}.")
    out = args.out if "out" in given else Path("runs") / f"paper-{scale.name}"
    workers = args.workers or (1 if torch.cuda.is_available() else cores())
    if "publish" in given:
        published(scale, args.publish)  # refuses a folder that cannot be added to before anything is trained
    cells = paper.cells(chosen, scale, seeds, out, args.data_dir)
    how = "only those that are finished" if args.finished else f"{workers} at a time"
    console.print(f"{experiment.name}: {experiment.summary}. {len(cells)} runs, {how}, in {out}", soft_wrap=True)
    failures: Failures = {}
    if args.finished:
        results = finished_results(cells, out)
    else:
        before = paper.pretraining_cells(chosen, scale, seeds, out, args.data_dir)
        results, failures = run_in_order(before, cells, workers)
    if not results:
        return report_failures(failures)
    if experiment.about == "uncertainty":
        for cell in cells:
            if cell.name in results:
                answer_unlabelled(cell.folder)
    records = records_of(scale.name, cells, results)
    show(experiment, scale, records, args.json)
    write(experiment, scale, records, [cell for cell in cells if cell.name in results], out / experiment.name)
    console.print(f"Tables, report and figures: {out / experiment.name}", soft_wrap=True)
    if "publish" in given:
        publish(experiment, scale, records, args.publish, command)
        console.print(f"Published: {args.publish}", soft_wrap=True)
    return report_failures(failures)


def finished_results(cells: Sequence[Cell], out: Path) -> Results:
    for cell in cells:
        check_folder(cell)
    results = {c.name: c.folder.load_result() for c in cells if c.folder.finished()}
    if not results:
        raise UsageError(f"None of these runs is finished in {out}: leave out `finished` to train them.")
    return results


def run_in_order(before: Sequence[Cell], cells: Sequence[Cell], workers: int) -> tuple[Results, Failures]:
    """First the pretraining that others start from: if it fails, nothing else is trained. Then seed by seed."""
    failures = run_with_progress(before, workers)[1] if before else {}
    if failures:
        return {}, failures
    return run_with_progress(sorted(cells, key=lambda cell: cell.config.seed), workers)


def list_experiments() -> None:
    table = Table(title="the paper's experiments", caption=f"certus paper NAME --scale {'|'.join(paper.SCALES)}")
    for column in ("name", "what it shows", "tasks", "arms"):
        table.add_column(column)
    for e in paper.EXPERIMENTS.values():
        table.add_row(e.name, e.summary, ", ".join(t.name for t in e.tasks), str(len(e.arms)))
    Console().print(table)


def command(experiment: paper.Experiment, scale: paper.Scale, only: str, seeds: int) -> str:
    return f"certus paper {experiment.name} --scale {scale.name} --only {shlex.quote(only)} --seeds {seeds}"


def show(experiment: paper.Experiment, scale: paper.Scale, records: Records, as_json: bool) -> None:
    summary = tables.summarise(experiment, scale, records, command)
    if as_json:
        print(json.dumps(summary))
        return
    for task, arms in tables.tasks_of(experiment, scale, records).items():
        for table in tables.task_tables(experiment, task, arms, records):
            print_table(table, f"{task.name}: {table.title}")
        print(f"{task.name}: {summary['tasks'][task.name]['description']}\n")
    print(summary["description"])


def write(
    experiment: paper.Experiment, scale: paper.Scale, records: Records, finished: Sequence[Cell], out: Path
) -> None:
    """results.json, results.md, and for each data set and number of labels a report with its figures."""
    out.mkdir(parents=True, exist_ok=True)
    put_json(out / "results.json", tables.summarise(experiment, scale, records, command))
    put(out / "results.md", tables.markdown(experiment, scale, records, command))
    groups: dict[str, list[Path]] = {}
    for cell in finished:
        groups.setdefault(f"{cell.config.data}-{cell.config.labels}", []).append(cell.folder.path)
    for name, folders in groups.items():
        shutil.rmtree(out / name / "figures", ignore_errors=True)
        write_report(folders, out / name / "report.html", out / name / "figures")
