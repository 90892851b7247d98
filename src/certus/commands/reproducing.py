"""certus paper."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from certus import paper, report
from certus.commands.comparing import run_cells, tell_failures
from certus.commands.training import Given
from certus.compare import Cell
from certus.errors import UsageError
from certus.folder import put, put_json
from certus.hindsight import ask_unlabelled
from certus.paper import tables
from certus.paper.publishing import publish
from certus.progress import console


def paper_command(args: Any, given: Given) -> int:
    if not args.experiment:
        list_experiments()
        return 0
    what = paper.experiment(args.experiment)
    scale = paper.scale_named(args.scale if "scale" in given else "full" if torch.cuda.is_available() else "cpu")
    chosen = paper.chosen(what, scale, args.only)
    if args.list:
        for task, arm in chosen:
            print(f"{task.name}/{arm.name}")
        return 0
    seeds = args.seeds if "seeds" in given else scale.seeds
    for name, least in (("seeds", seeds), ("workers", args.workers if "workers" in given else 1)):
        if least < 1:
            raise UsageError(f"--{name} must be at least 1, but is {least}.")
    out = args.out if "out" in given else Path("runs") / f"paper-{scale.name}"
    workers = args.workers or (1 if torch.cuda.is_available() else len(os.sched_getaffinity(0)))
    found = paper.cells(chosen, scale, seeds, out, args.data_dir)
    every = [cell for cells in found.values() for cell in cells]
    words = paper.in_words(scale, [c.config for c in every], seeds)
    before = paper.starts(chosen, scale, seeds, out, args.data_dir)
    console.print(f"{what.name}: {what.summary}. {len(every)} runs, {workers} at a time, in {out}", soft_wrap=True)
    console.print(words, soft_wrap=True)
    failed = run_cells(before, workers)[1] if before else {}
    if failed:
        return tell_failures(failed)
    ordered = sorted(every, key=lambda cell: cell.config.seed)  # what can be compared comes first
    results, failed = run_cells(ordered, workers)
    summary: dict[str, Any] = {"experiment": what.name, "scale": scale.name, "words": words, "tasks": {}}
    for task in dict.fromkeys(task for task, _ in chosen):
        cells = found[task.name]
        arms = [arm for t, arm in chosen if t == task and any(c.arm == arm.name for c in cells)]
        summary["tasks"][task.name] = tables.task_table(what, task, arms, cells, results)
    finished = [cell for cell in every if cell.name in results]
    if what.about == "uncertainty":
        for cell in finished:
            ask_unlabelled(cell.folder)
        summary["uncertainty"] = tables.uncertainty_table([c.folder for c in finished])
    if what.about == "selection":
        summary["selection"] = tables.selection_table(every, results)
    show(summary, what, args.json)
    write(summary, what, finished, out / what.name)
    if "publish" in given:
        publish(finished, out / what.name, args.publish)
        console.print(f"Published in {args.publish}", soft_wrap=True)
    return tell_failures(failed)


def list_experiments() -> None:
    table = Table(title="the paper's experiments", caption="certus paper NAME --scale cpu|full")
    for column in ("name", "what it shows", "tasks", "arms"):
        table.add_column(column)
    for e in paper.EXPERIMENTS.values():
        table.add_row(e.name, e.summary, ", ".join(t.name for t in e.tasks), str(len(e.arms)))
    Console().print(table)


def sections(summary: dict[str, Any], what: paper.Experiment) -> list[tuple[str, list[str], list[list[str]]]]:
    """Title, heads and rows of each table."""
    found = []
    if "uncertainty" in summary:
        found.append(("what each uncertainty is worth", *tables.uncertainty_rows(summary["uncertainty"])))
    if "selection" in summary:
        found.append(("how right the selected targets are", *tables.selection_rows(summary["selection"])))
    for name, table in summary["tasks"].items():
        heads, rows = tables.rows_of(table, what.references)
        if rows:
            found.append((name, heads, rows))
    return found


def show(summary: dict[str, Any], what: paper.Experiment, as_json: bool) -> None:
    if as_json:
        print(json.dumps(summary))
        return
    page = Console(width=None if sys.stdout.isatty() else 160)  # a file has no edge to wrap at
    for title, heads, rows in sections(summary, what):
        table = Table(title=title, caption="± standard deviation over seeds; differences paired by seed, [95 %]")
        for i, head in enumerate(heads):
            table.add_column(head, justify="right" if i else "left")
        for row in rows:
            table.add_row(*row)
        page.print(table)
    print(summary["words"])


def write(summary: dict[str, Any], what: paper.Experiment, finished: Sequence[Cell], out: Path) -> None:
    """results.json, results.md, and the report of the runs with its figures."""
    out.mkdir(parents=True, exist_ok=True)
    put_json(out / "results.json", summary)
    text = f"# {what.name}: {what.summary}\n\n`{shlex.join(['certus', *sys.argv[1:]])}`\n\n{summary['words']}\n"
    for title, heads, rows in sections(summary, what):
        text += f"\n## {title}\n\n{tables.markdown_table(heads, rows)}"
    put(out / "results.md", text)
    if finished:
        shutil.rmtree(out / "figures", ignore_errors=True)
        report.write([c.folder.path for c in finished], out / "report.html", out / "figures")
    console.print(f"Tables, report and figures: {out}", soft_wrap=True)
