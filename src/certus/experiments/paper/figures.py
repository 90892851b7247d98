"""The published figure of an experiment, drawn from records: a column for each task and a row for each kind of panel,
or one of `overviews`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from certus.experiments.paper.overviews import OVERVIEWS, Tasks, title_of
from certus.experiments.paper.records import Records, Row
from certus.experiments.paper.scales import Scale
from certus.experiments.paper.tables import comparison_of, tasks_of
from certus.experiments.paper.tasks import Arm, Experiment, Task
from certus.report.answers import draw_ranking, metric_text
from certus.report.curves import scale_errors
from certus.report.figure import STYLE, by_epoch, line, look, put_picture
from certus.report.text_table import spread_text


def draw_experiment(experiment: Experiment, scale: Scale, records: Records, path: Path) -> None:
    """Write the figure as PNG."""
    tasks = tasks_of(experiment, scale, records)
    with rc_context(STYLE):
        figure = Figure(layout="constrained")
        if experiment.panels[0] in OVERVIEWS:
            OVERVIEWS[experiment.panels[0]](figure, tasks, records, scale)
        else:
            draw_by_task(figure, experiment.panels, tasks, records)
        put_legend(figure)
        put_picture(path, figure)


def draw_by_task(figure: Figure, panels: Sequence[str], tasks: Tasks, records: Records) -> None:
    names = list(dict.fromkeys(arm.name for arms in tasks.values() for arm in arms))
    looks = {name: look(i) for i, name in enumerate(names)}
    heights = [0.6 + 0.3 * len(names) if panel == "errors" else 2.8 for panel in panels]
    figure.set_size_inches(1.6 + 4.6 * len(tasks), sum(heights) + 0.9)
    grid = figure.subplots(len(heights), len(tasks), squeeze=False, height_ratios=heights)
    for row, panel in enumerate(panels):
        for axes, (task, arms) in zip(grid[row], tasks.items(), strict=True):
            PANELS[panel](axes, task, arms, records, looks)
            if row == 0:
                axes.set_title(title_of(task), fontsize=12)


def put_legend(figure: Figure) -> None:
    """One for all panels, below them."""
    drawn = {
        label: handle for axes in figure.axes for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    if drawn:
        columns = min(4, len(drawn), int(figure.get_figwidth() // 3))
        figure.legend(list(drawn.values()), list(drawn), loc="outside lower center", ncols=columns)


Looks = Mapping[str, dict[str, Any]]


def draw_errors(axes: Axes, task: Task, arms: Sequence[Arm], records: Records, looks: Looks) -> None:
    """Every seed's test error, and mean ± std."""
    comparison = comparison_of(task, arms, records)
    for y, row in enumerate(comparison.rows):
        colour = looks[row.name]["color"]
        axes.scatter(list(row.errors.values()), [y] * row.n, s=16, color=colour, alpha=0.5, linewidths=0)
        axes.errorbar(row.mean or 0.0, y + 0.18, xerr=row.std or 0.0, fmt="o", ms=5, color=colour, capsize=3)
        text = spread_text(row.mean, row.std, 1)
        axes.annotate(text, (1.01, y), xycoords=("axes fraction", "data"), va="center", fontsize=9)
    axes.set_yticks(range(len(comparison.rows)), [row.name for row in comparison.rows])
    axes.set_ylim(len(comparison.rows) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("test error (%)")


def curve_of(rows: Sequence[Row]) -> dict[str, Any]:
    return {key: np.array([row[key] for row in rows]) for key in ("epoch", "mean", "std", "n")}


def draw_learning(axes: Axes, task: Task, arms: Sequence[Arm], records: Records, looks: Looks) -> None:
    values = []
    for arm in arms:
        if rows := records.select("learning-curves", task.name, arm.name):
            line(axes, curve_of(rows), arm.name, looks[arm.name], banded=False)
            values += [row["mean"] for row in rows]
    if values:
        scale_errors(axes, values)
    axes.set_ylabel("validation error (%)")
    by_epoch(axes)


def draw_targets(axes: Axes, task: Task, arms: Sequence[Arm], records: Records, looks: Looks) -> None:
    """The accuracy of the selected targets."""
    draw_term(axes, task, arms, records, looks, "targets", {"quantity": "selected right"})
    axes.set_ylabel("selected targets that are right (%)")


def draw_losses(axes: Axes, task: Task, arms: Sequence[Arm], records: Records, looks: Looks) -> None:
    draw_term(axes, task, arms, records, looks, "losses", {})
    axes.set_ylabel("consistency loss, λ included")
    axes.set_ylim(bottom=0)


def draw_term(
    axes: Axes, task: Task, arms: Sequence[Arm], records: Records, looks: Looks, table: str, wanted: Row
) -> None:
    """A curve of the consistency term."""
    for arm in arms:
        rows = records.select(table, task.name, arm.name)
        rows = [row for row in rows if all(row[k] == v for k, v in {"term": "consistency", **wanted}.items())]
        if rows:
            line(axes, curve_of(rows), arm.name, looks[arm.name])
    by_epoch(axes)


def draw_bins(axes: Axes, task: Task, arms: Sequence[Arm], records: Records, _: Looks) -> None:
    """Accuracy in bins of the unlabelled images, ranked by each uncertainty."""
    rows = [
        r for arm in arms for r in records.select("ranked-bins", task.name, arm.name) if r["images"] == "unlabelled"
    ]
    for name in dict.fromkeys(row["uncertainty"] for row in rows):
        draw_ranking(axes, name, [r["accuracy"] for r in rows if r["uncertainty"] == name], metric_text(name))
    axes.set_xlabel("bin of unlabelled images, most certain first")
    axes.set_ylabel("accuracy (%)")


PANELS: dict[str, Callable[[Axes, Task, Sequence[Arm], Records, Looks], None]] = {
    "errors": draw_errors,
    "learning": draw_learning,
    "targets": draw_targets,
    "losses": draw_losses,
    "bins": draw_bins,
}
