"""The rows of benchmarks/minutes.py, and what is made of them: a table for each task, and the figure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, LogLocator, NullLocator
from resumable import Row, length

from certus.report.figure import INK, MUTED, SERIES, STYLE
from certus.report.statistics import mean_std
from certus.report.text_table import TextTable, spread_text

TASKS = ("cifar10-4000", "cifar10-1000", "svhn-1000", "fashion-mnist-1000")
USB = ("usb fixmatch", "usb mean-teacher")
TIMELESS = ("hog + logistic regression", "label spreading")  # run once per seed, however long they take
DEFAULT = "default"
ARMS = (
    DEFAULT,
    *("engine supervised", "engine mean-teacher", "engine ft-ccl", "engine fixmatch"),
    *("0.1.0 supervised", "0.1.0 ft-ccl", *USB, *TIMELESS),
)
COLUMNS = (
    *("task", "arm", "minutes", "seed", "test_error", "validation_error", "steps", "processor_seconds"),
    *("megabytes", "version", "settings"),
)
Errors = dict[tuple[str, str, str], dict[int, float]]  # by task, arm and minutes, then by seed


@dataclass(frozen=True)
class Cell:
    task: str  # a data set and its number of labels
    arm: str
    minutes: str  # as typed; empty for an arm without minutes
    seed: int

    @classmethod
    def of(cls, row: Row) -> Cell:
        return cls(row["task"], row["arm"], row["minutes"], int(row["seed"]))

    def __str__(self) -> str:
        return ", ".join(filter(None, (self.task, self.arm, length(self.minutes), f"seed {self.seed}")))


def errors(rows: Iterable[Row]) -> Errors:
    """Test errors by seed, by task, arm and minutes."""
    found: Errors = {}
    for row in rows:
        cell = Cell.of(row)
        found.setdefault((cell.task, cell.arm, cell.minutes), {})[cell.seed] = float(row["test_error"])
    return found


def known(rows: Iterable[Row]) -> tuple[list[str], list[str], list[str]]:
    """Tasks, arms and minutes of the rows, each in the usual order."""
    found = [Cell.of(row) for row in rows]
    tasks, arms = {c.task for c in found}, {c.arm for c in found}
    ordered = [[n for n in (*usual, *sorted(have)) if n in have] for usual, have in ((TASKS, tasks), (ARMS, arms))]
    minutes = sorted({c.minutes for c in found} - {""}, key=float)
    return list(dict.fromkeys(ordered[0])), list(dict.fromkeys(ordered[1])), minutes


def tables(rows: Sequence[Row]) -> list[TextTable]:
    """One for each task: an arm per row, minutes as columns, mean ± standard deviation over n seeds.

    n has a number for each filled column where they differ.
    """
    found, (tasks, arms, minutes) = errors(rows), known(rows)
    made = []
    for task in tasks:
        lines = []
        for arm in arms:
            values = [found.get((task, arm, m), {}) for m in (*minutes, "")]
            texts = [spread_text(*mean_std(list(v.values()))) if v else "" for v in values]
            if texts[-1]:
                texts[-1] += f" in {fmean(seconds(rows, task, arm)):.0f} s"
            counts = [str(len(v)) for v in values if v]
            if counts:
                lines.append((arm, *texts, counts[0] if len(set(counts)) == 1 else ", ".join(counts)))
        data, _, labels = task.rpartition("-")
        heads = (f"{data}, {labels} labels", *(length(m) for m in minutes), "without a limit", "n")
        made.append(TextTable(heads, tuple(lines)))
    return made


def seconds(rows: Iterable[Row], task: str, arm: str) -> list[float]:
    return [float(r["processor_seconds"]) for r in rows if (r["task"], r["arm"]) == (task, arm)]


# --- the figure

METHODS = ("supervised", "mean-teacher", "ft-ccl", "fixmatch")  # a colour each
PROGRAMS: dict[str, dict[str, Any]] = {
    "engine": {"linestyle": "-", "marker": "o"},
    "0.1.0": {"linestyle": ":", "marker": "s"},
    "usb": {"linestyle": "-.", "marker": "^"},
}
LEVELS = {"hog + logistic regression": (MUTED, (0, (6, 3))), "label spreading": (SERIES[4], (0, (6, 3)))}


def draw(errors: Errors, tasks: Sequence[str], arms: Sequence[str], minutes: Sequence[str]) -> Figure:
    columns = min(2, len(tasks))
    rows = -(-len(tasks) // columns)
    with rc_context(STYLE):
        figure = Figure(figsize=(5 * columns, 3.6 * rows + 0.9), layout="constrained")
        grid = figure.subplots(rows, columns, squeeze=False)
        for axes, task in zip(grid.flat, tasks, strict=False):
            panel(axes, task, errors, arms, minutes)
        for axes in grid.flat[len(tasks) :]:
            axes.set_axis_off()
        pairs = [pair for axes in grid.flat for pair in zip(*axes.get_legend_handles_labels(), strict=True)]
        shown = {label: handle for handle, label in pairs}
        labels = [arm for arm in arms if arm in shown]
        figure.legend([shown[arm] for arm in labels], labels, loc="outside lower center", ncols=2 * columns)
    return figure


def panel(axes: Axes, task: str, errors: Errors, arms: Sequence[str], minutes: Sequence[str]) -> None:
    means = []
    for i, arm in enumerate(arms):
        points = [
            (float(m), *mean_std(list(errors[task, arm, m].values()))) for m in minutes if (task, arm, m) in errors
        ]
        if points:
            x, y, std = zip(*points, strict=True)
            apart = 1.012 ** (i - len(arms) / 2)  # so that bars of equal minutes do not cover each other
            bars = [s or 0.0 for s in std]
            axes.errorbar([apart * v for v in x], y, bars, label=arm, markersize=4.5, elinewidth=1.1, **look(arm))
            means += y
        elif (task, arm, "") in errors:
            y, _ = mean_std(list(errors[task, arm, ""].values()))
            colour, dashes = LEVELS[arm]
            axes.axhline(y, color=colour, linestyle=dashes, linewidth=1.4, label=arm)
            means.append(y)
    data, _, labels = task.rpartition("-")
    axes.set_title(f"{data}, {int(labels):,} labels", loc="left")
    axes.set_xlabel("minutes of two cores")
    axes.set_ylabel("test error (%)")
    if minutes:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(FixedLocator([float(m) for m in minutes]))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_locator(NullLocator())
    if means:
        axes.set_yscale("log")
        axes.set_ylim(0.88 * min(means), 1.1 * max(means))
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 4, 5, 7)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_locator(NullLocator())


def look(arm: str) -> dict[str, Any]:
    """The colour is the method, the line is the program."""
    if arm == DEFAULT:
        return {"color": INK, "linestyle": "-", "marker": "D"}
    program, _, method = arm.partition(" ")
    return {"color": SERIES[METHODS.index(method)], **PROGRAMS[program]}
