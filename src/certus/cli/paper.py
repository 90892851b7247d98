"""certus paper."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from rich.table import Table

from certus.cli.compare import ON, Failures, Results, at_a_time, report_failures, run_with_progress, tell_timing
from certus.cli.flags import argument, flag
from certus.cli.progress import console
from certus.cli.screen import screen
from certus.cli.tables import print_table
from certus.errors import CertusError, UsageError
from certus.experiments import paper
from certus.experiments.cells import Cell, finished_cells
from certus.experiments.compare import MOST_SEEDS
from certus.experiments.paper import tables
from certus.experiments.paper.publishing import publish, published
from certus.experiments.paper.recording import records_of
from certus.experiments.paper.records import Records
from certus.experiments.paper.tasks import MILLION
from certus.experiments.plan import PLANNING, Plan
from certus.experiments.pool import LOCAL
from certus.methods.options import at_least, between
from certus.report.report import write_report
from certus.training.lock import locked
from certus.training.planning import check_length
from certus.training.unlabelled import answer_unlabelled
from certus.writing import put, put_json

WRITING = 600  # seconds for another process that writes the same tables


@dataclass(frozen=True)
class Options:
    """Repeat the paper's experiments.

    Without a name, certus paper lists them. At the end it shows the results beside the paper's printed numbers. If it
    is stopped, the same command goes on from there.
    """

    experiment: str | None = argument("[EXPERIMENT]", f"one of {', '.join(paper.EXPERIMENTS)}")
    scale: str | None = flag(
        "full: the paper's size, for a GPU; cpu: the same minutes on one core for every run; ladder, map and record "
        "have their own",
        None,
        "full with a GPU, else cpu",
    )
    minutes: float | None = flag("of every run: at scale cpu of one core, for record of two", None, "cpu 3, record 180")
    images: str | None = flag(
        "for ladder and map: millions of unlabelled images that a run sees, several with commas",
        None,
        "ladder 0.2,0.6,2.5,10, map 0.2",
    )
    noise: str | None = flag("for ladder and map: shares of the labels to replace by random ones, such as 0.2,0.3,0.5")
    task: str = flag("run only this task, such as svhn-1000", "")
    only: str = flag(
        "run only the cells that match TASK, TASK/ARM or */ARM; * matches anything; several with ; between them", ""
    )
    seeds: int | None = flag("number of seeds, counted from 0", None, "full 5, else 3")
    data_dir: str = flag("folder of the data sets' files", "", "$CERTUS_DATA or the user's cache")
    workers: int | None = flag("runs trained at the same time", None, "one per core; with a GPU one")
    on: str = flag(ON, LOCAL)
    out: Path | None = flag("the folder of the runs", None, "runs/paper-SCALE")
    publish: Path | None = flag(
        "also write small files for others into this folder, or add to those there: settings and results of every run "
        "as CSV, tables, one figure"
    )
    finished: bool = flag("train nothing: make tables and figures of the finished runs", False)
    list: bool = flag("print the names of the cells and run nothing", False)
    json: bool = flag("print the results as JSON", False)


def run(options: Options) -> int:
    if options.experiment is None:
        list_experiments()
        return 0
    experiment, scale = sized(options)
    if options.task and options.only:
        raise UsageError("Give only one of `task` and `only`.")
    chosen = paper.chosen(experiment, scale, options.task or options.only)
    if options.list:
        for task, arm in chosen:
            print(f"{task.name}/{arm.name}")
        return 0
    seeds = scale.seeds if options.seeds is None else options.seeds
    for name, number in (("seeds", seeds), ("workers", options.workers)):
        if number is not None:
            at_least(1, MOST_SEEDS)(name, number)
    out = options.out or Path("runs") / f"paper-{scale.label}"
    workers = options.workers or (1 if torch.cuda.is_available() and options.on == LOCAL else None)
    if options.publish is not None:
        published(scale, options.publish)  # refuses a folder that cannot be added to before anything is trained
    with nullcontext() if options.finished else locked(out, PLANNING):  # another process may be timing the same arms
        plan = Plan(out, scale.label, not options.finished, tell_timing)
        cells = paper.cells(chosen, scale, seeds, plan, options.data_dir)
        before = [] if options.finished else paper.pretraining_cells(chosen, scale, seeds, plan, options.data_dir)
    how = "only those that are finished" if options.finished else at_a_time(options.on, workers)
    console.print(f"{experiment.name}: {experiment.summary}. {len(cells)} runs, {how}, in {out}", soft_wrap=True)
    failures: Failures = {}
    if options.finished:
        results, failures = finished_cells(cells)
        if not results and not failures:
            raise UsageError(f"None of these runs is finished in {out}: leave out `finished` to train them.")
    else:
        results, failures = run_in_order(before, cells, workers, options.on)
    if not results:
        return report_failures(failures)
    if experiment.about == "uncertainty":
        for cell in [cell for cell in cells if cell.name in results]:
            try:
                answer_unlabelled(cell.folder)
            except CertusError as e:
                failures[cell.name] = e
                del results[cell.name]
    records = records_of(scale.label, cells, results)
    show(experiment, scale, records, options.json)
    write(experiment, scale, records, [cell for cell in cells if cell.name in results], out / experiment.name)
    console.print(f"Tables, report and figures: {out / experiment.name}", soft_wrap=True)
    if options.publish is not None:
        with locked(options.publish, WRITING):
            publish(experiment, scale, records, options.publish, command)
        console.print(f"Published: {options.publish}", soft_wrap=True)
    return report_failures(failures)


def sized(options: Options) -> tuple[paper.Experiment, paper.Scale]:
    """The experiment with its tasks, and the scale with its minutes."""
    experiment = paper.experiment(options.experiment or "")
    if experiment.scale and options.scale:
        raise UsageError(f"{experiment.name} has its own scale: leave `scale` out.")
    scale = paper.scale_of(experiment, options.scale or ("full" if torch.cuda.is_available() else "cpu"))
    if options.minutes is not None:
        if not scale.minutes:
            raise UsageError(f"At scale {scale.name} runs are not limited by `minutes`: leave it out.")
        check_length(None, None, options.minutes)
        scale = replace(scale, minutes=options.minutes)
    if (options.images or options.noise) and not experiment.lengths:
        raise UsageError(f"`images` and `noise` are for ladder and map, not for {experiment.name}: leave them out.")
    if experiment.lengths:
        millions = numbers("images", options.images, 1e-6, 1e6)
        noises = numbers("noise", options.noise, 0, 1)
        lengths = tuple(round(MILLION * m) for m in millions) or experiment.lengths
        experiment = experiment.seeing(lengths, noises or (0.0,))
    return experiment, scale


def numbers(name: str, text: str | None, least: float, most: float) -> list[float]:
    """Those of `0.2,0.6`, in rising order."""
    found = set()
    for word in filter(None, (text or "").split(",")):
        try:
            found.add(float(word))
        except ValueError:
            raise UsageError(f"`{name}` must be numbers with commas between them, but one is {word!r}.") from None
    for number in found:
        between(least, most)(name, number)
    return sorted(found)


def run_in_order(
    before: Sequence[Cell], cells: Sequence[Cell], workers: int | None, on: str = LOCAL
) -> tuple[Results, Failures]:
    """First the pretraining that others start from: if it fails, nothing else is trained. Then seed by seed."""
    failures = run_with_progress(before, workers, on)[1] if before else {}
    if failures:
        return {}, failures
    return run_with_progress(sorted(cells, key=lambda cell: cell.config.seed), workers, on)


def list_experiments() -> None:
    table = Table(title="the paper's experiments", caption=f"certus paper NAME --scale {'|'.join(paper.SCALES)}")
    for column in ("name", "what it shows", "tasks", "arms"):
        table.add_column(column)
    for e in paper.EXPERIMENTS.values():
        table.add_row(e.name, e.summary, ", ".join(t.name for t in e.tasks), str(len(e.arms)))
    screen().print(table)


def command(experiment: paper.Experiment, scale: paper.Scale, only: str, seeds: int) -> str:
    words = ["certus", "paper", experiment.name]
    if not experiment.scale:
        words += ["--scale", scale.name]
    if scale.minutes:
        words += ["--minutes", f"{scale.minutes:g}"]
    if experiment.lengths:
        task = paper.Task.named(only.partition("/")[0])
        words += ["--images", task.millions]
        words += ["--noise", f"{task.noise:g}"] if task.noise else []
    return shlex.join([*words, "--only", only, "--seeds", f"{seeds}"])


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
    """results.json, results.md, and for each data set and number of labels a report with its figures.

    Other processes, which may end at the same moment, write the same one after the other.
    """
    groups: dict[str, list[Path]] = {}
    for cell in finished:
        groups.setdefault(f"{cell.config.data}-{cell.config.labels}", []).append(cell.folder.path)
    with locked(out, WRITING):
        put_json(out / "results.json", tables.summarise(experiment, scale, records, command))
        put(out / "results.md", tables.markdown(experiment, scale, records, command))
        for name, folders in groups.items():
            shutil.rmtree(out / name / "figures", ignore_errors=True)
            write_report(folders, out / name / "report.html", out / name / "figures")
