"""The tables of an experiment, beside the paper's: plain dictionaries for JSON, and text for the terminal and Markdown.

They are made from records alone, whether of runs on this machine or of published CSV files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from statistics import fmean
from textwrap import fill
from typing import Any

from certus.experiments.paper.cells import chosen
from certus.experiments.paper.records import Records, config_of
from certus.experiments.paper.scales import Scale, describe_scale, describe_task
from certus.experiments.paper.tasks import Arm, Experiment, Task
from certus.report.answers import metric_text
from certus.report.statistics import Comparison, n_text
from certus.report.statistics import Row as ComparisonRow
from certus.report.text_table import TextTable, number_text, spread_text

MOMENTS = (0.1, 0.25, 0.5, 0.75, 1.0)  # of a run, at which the selection table has a row
WIDTH = 100  # of prose
Command = Callable[[Experiment, Scale, str, int], str]  # the command for a pattern of TASK/ARM and a number of seeds
ROW_KEYS = ("n", "mean", "std", "preliminary", "test_error", "seconds", "steps")


def tasks_of(experiment: Experiment, scale: Scale, records: Records) -> dict[Task, list[Arm]]:
    """The tasks and arms of an experiment that have runs, in the experiment's order."""
    trained = {(row["task"], row["arm"]) for row in records.runs}
    found: dict[Task, list[Arm]] = {}
    for task, arm in chosen(experiment.covering(Task.named(row["task"]) for row in records.runs), scale):
        if (task.name, arm.name) in trained:
            found.setdefault(task, []).append(arm)
    return found


def summarise(experiment: Experiment, scale: Scale, records: Records, command: Command) -> dict[str, Any]:
    """The content of results.json."""
    tasks = {}
    for task, arms in tasks_of(experiment, scale, records).items():
        summary = {
            "command": command(experiment, scale, *selection_of(experiment, scale, task, arms, records)),
            "description": description(scale, task, arms, records),
            "data": task.data,
            "labels": task.labels,
            "label_noise": task.noise,
            "arms": arms_summary(experiment, task, arms, records),
        }
        if experiment.about == "uncertainty":
            summary["uncertainty"] = certainty_summary(task, arms, records)
        if experiment.about == "selection":
            summary["selection"] = selection_summary(task, arms, records)
        tasks[task.name] = summary
    return {
        "experiment": experiment.name,
        "scale": scale.label,
        "description": scale_description(experiment, scale, records),
        "tasks": tasks,
    }


def scale_description(experiment: Experiment, scale: Scale, records: Records) -> str:
    task = next(iter(tasks_of(experiment, scale, records)))
    row = records.select("runs", task.name)[0]
    return describe_scale(scale, config_of(row, task.data, task.labels, task.noise))


def description(scale: Scale, task: Task, arms: Sequence[Arm], records: Records) -> str:
    rows = [row for arm in arms for row in records.select("runs", task.name, arm.name)]
    configs = [config_of(row, task.data, task.labels, task.noise) for row in rows]
    return describe_task(scale, configs, Counter(row["arm"] for row in rows).values())


def selection_of(
    experiment: Experiment, scale: Scale, task: Task, arms: Sequence[Arm], records: Records
) -> tuple[str, int]:
    """The pattern that fits exactly these arms of the task, and the number of their seeds."""
    everything = [arm.name for t, arm in chosen(experiment.covering([task]), scale) if t == task]
    names = [arm.name for arm in arms]
    only = task.name if names == everything else "; ".join(f"{task.name}/{name}" for name in names)
    return only, max(len(records.select("runs", task.name, name)) for name in names)


def comparison_of(task: Task, arms: Sequence[Arm], records: Records, references: Sequence[str] = ()) -> Comparison:
    """The test errors of these arms; intervals are corrected for the number of differences to the references."""
    rows = []
    for arm in arms:
        runs = records.select("runs", task.name, arm.name)
        rows.append(
            ComparisonRow(
                arm.name,
                {row["seed"]: row["test_error"] for row in runs},
                method=arm.method,
                steps=runs[0]["steps"],
                seconds=fmean(row["seconds"] for row in runs),
            )
        )
    names = [arm.name for arm in arms]
    pairs = {frozenset((name, reference)) for name in names for reference in references if reference in names}
    comparisons = sum(len(pair) == 2 for pair in pairs)
    return Comparison(tuple(rows), task.data, task.labels, task.noise, comparisons=max(1, comparisons))


def arms_summary(experiment: Experiment, task: Task, arms: Sequence[Arm], records: Records) -> dict[str, Any]:
    """Each arm's test errors, its paired differences to the experiment's references, and its error in the paper."""
    comparison = comparison_of(task, arms, records, experiment.references)
    known = {arm.name for arm in arms}
    found = {}
    for arm in arms:
        values = comparison[arm.name].as_dict()
        differences = {r: comparison.difference(arm.name, r) for r in experiment.references if r in known}
        found[arm.name] = {
            **{key: values[key] for key in ROW_KEYS},
            "differences": {name: asdict(d) for name, d in differences.items() if d is not None},
            "printed": arm.printed(task),
        }
    return found


def errors_table(experiment: Experiment, task: Task, arms: Sequence[Arm], records: Records) -> TextTable:
    """With the paper's errors in the last column."""
    table = comparison_of(task, arms, records, experiment.references).table(experiment.references)
    printed = [arm.printed(task) for arm in arms]
    rows = [(*row, spread_text(*p) if p else "–") for row, p in zip(table.rows, printed, strict=True)]
    return TextTable((*table.heads, "the paper's"), tuple(rows), "test errors", table.caption)


def certainty_summary(task: Task, arms: Sequence[Arm], records: Records) -> dict[str, Any]:
    """By images (unlabelled, test): their number, n, and for each uncertainty the mean and std over seeds of the rank
    correlation of its bins with accuracy, and of the AUROC of finding wrong answers."""
    found: dict[str, Any] = {}
    for row in (row for arm in arms for row in records.select("certainty", task.name, arm.name)):
        part = found.setdefault(row["images"], {"images": row["count"], "n": row["n"], "metrics": {}})
        part["metrics"][row["uncertainty"]] = {
            "rank correlation": spread(row["rank_correlation"], row["rank_correlation_std"]),
            "auroc": spread(row["auroc"], row["auroc_std"]),
        }
    return found


def spread(mean: float | None, std: float | None) -> dict[str, float | None] | None:
    return None if mean is None else {"mean": mean, "std": std}


def certainty_table(found: Mapping[str, Any]) -> TextTable:
    heads = ("images", "uncertainty", "rank correlation with accuracy", "AUROC of finding wrong answers", "n")
    rows = []
    for images, v in found.items():
        for name, worth in v["metrics"].items():
            cells = [spread_text(w["mean"], w["std"], 3) if w else "–" for w in worth.values()]
            rows.append((f"{images} ({v['images']:,})", metric_text(name), *cells, n_text(v["n"])))
    return TextTable(heads, tuple(rows), "how well each uncertainty finds wrong answers", "Means over n seeds.")


def selection_summary(task: Task, arms: Sequence[Arm], records: Records) -> dict[str, Any]:
    """By arm, at a few moments of the run: the share of targets kept, how many of them and of all are right, and the
    consistency loss, λ included: a target that the student already agrees with adds nothing to it."""
    found: dict[str, Any] = {}
    for arm in arms:
        targets = [r for r in records.select("targets", task.name, arm.name) if r["term"] == "consistency"]
        losses = [r for r in records.select("losses", task.name, arm.name) if r["term"] == "consistency"]
        curves = {
            name: {r["epoch"]: r["mean"] for r in targets if r["quantity"] == quantity}
            for name, quantity in (("kept", "kept"), ("selected", "selected right"), ("all", "all right"))
        }
        curves["loss"] = {r["epoch"]: r["mean"] for r in losses}
        if curves["all"]:
            last = max(curves["all"])
            moments = [moment(curves, max(1, round(share * last))) for share in MOMENTS]
            found[arm.name] = {"n": len(records.select("runs", task.name, arm.name)), "moments": moments}
    return found


def moment(curves: Mapping[str, Mapping[int, float]], epoch: int) -> dict[str, float | None]:
    """Every curve at its epoch nearest to this one; None for an empty curve: a filter that kept nothing."""
    row: dict[str, float | None] = {"epoch": epoch}
    for name, curve in curves.items():
        row[name] = curve[min(curve, key=lambda e: abs(e - epoch))] if curve else None
    return row


def selection_table(found: Mapping[str, Any]) -> TextTable:
    heads = ("method", "epoch", "kept (%)", "selected right (%)", "all right (%)", "consistency loss", "n")
    rows = []
    for arm, v in found.items():
        for m in v["moments"]:
            shares = [number_text(m[key], ".1f") for key in ("kept", "selected", "all")]
            rows.append((arm, f"{m['epoch']}", *shares, number_text(m["loss"], ".3f"), n_text(v["n"])))
    caption = "Means over n seeds. Right: the target's class is the true class, on unlabelled images."
    return TextTable(heads, tuple(rows), "accuracy of the selected targets", caption)


def task_tables(experiment: Experiment, task: Task, arms: Sequence[Arm], records: Records) -> list[TextTable]:
    """The tables of a task; the one that the experiment is about comes first."""
    found = []
    if experiment.about == "uncertainty" and (certainty := certainty_summary(task, arms, records)):
        found.append(certainty_table(certainty))
    if experiment.about == "selection" and (selection := selection_summary(task, arms, records)):
        found.append(selection_table(selection))
    return [*found, errors_table(experiment, task, arms, records)]


def markdown(experiment: Experiment, scale: Scale, records: Records, command: Command, figure: str = "") -> str:
    """All tables as a page; `figure` is the file of its figure."""
    text = (
        f"# {experiment.name}: {experiment.summary}\n\n{fill(scale_description(experiment, scale, records), WIDTH)}\n"
    )
    if figure:
        text += f"\n![{experiment.summary}]({figure})\n"
    for task, arms in tasks_of(experiment, scale, records).items():
        selection = selection_of(experiment, scale, task, arms, records)
        text += f"\n## {task.name}\n\n`{command(experiment, scale, *selection)}`\n"
        text += f"\n{fill(description(scale, task, arms, records), WIDTH)}\n"
        for table in task_tables(experiment, task, arms, records):
            head = f"{table.title[0].upper()}{table.title[1:]}. {table.caption}"
            text += f"\n{fill(head, WIDTH)}\n\n{table.markdown()}"
    return text
