"""The rows of benchmarks/pictures.py, and what is made of them: tables for each folder, and the figure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, LogLocator, NullLocator
from resumable import Row, length

from certus.report.figure import MUTED, SERIES, STYLE
from certus.report.statistics import mean_std
from certus.report.text_table import TextTable, spread_text

CERTUS = ("certus", "certus supervised", "frozen", "fine-tuned", "scratch")
TIMELESS = (  # run once per seed, however long they take
    *("hog + logistic regression", "features + logistic regression"),
    *("features + self-training", "features + label spreading"),
)
ARMS = (*CERTUS, *TIMELESS)
COLUMNS = (
    *("folder", "arm", "labels", "seed", "minutes", "test_error", "error_of_certain_half", "network"),
    *("processor_seconds", "megabytes", "version", "settings"),
)
MEASURES = {
    "test_error": "Test error (%)",
    "error_of_certain_half": "Error among the more certain half of the answers (%)",
}
Lines = dict[str, dict[int, dict[int, float]]]  # by arm and its minutes, then by labels of each class, then by seed


@dataclass(frozen=True)
class Cell:
    folder: str  # the set that it is drawn from
    arm: str
    labels: int  # of each class
    seed: int
    minutes: str  # as typed; empty for an arm without minutes

    @classmethod
    def of(cls, row: Row) -> Cell:
        return cls(row["folder"], row["arm"], int(row["labels"]), int(row["seed"]), row["minutes"])

    def __str__(self) -> str:
        labels = f"{self.labels} label{'s' * (self.labels > 1)} per class"
        return ", ".join(filter(None, (self.folder, self.arm, labels, length(self.minutes), f"seed {self.seed}")))

    @property
    def line(self) -> str:
        """Of a table."""
        return ", ".join(filter(None, (self.arm, length(self.minutes))))


def folders(rows: Iterable[Row]) -> list[str]:
    """In the order of their first rows."""
    return list(dict.fromkeys(row["folder"] for row in rows))


def lines(rows: Iterable[Row], folder: str, measure: str = "test_error") -> Lines:
    """Of one folder; arms are in the usual order, then by minutes."""
    here = sorted((r for r in rows if r["folder"] == folder), key=order)
    found: Lines = {}
    for row in here:
        cell = Cell.of(row)
        found.setdefault(cell.line, {}).setdefault(cell.labels, {})[cell.seed] = float(row[measure])
    return found


def order(row: Row) -> tuple[int, float]:
    return (ARMS.index(row["arm"]) if row["arm"] in ARMS else len(ARMS)), float(row["minutes"] or 0)


def table(found: Lines, title: str) -> TextTable:
    """A line per arm, labels of each class as columns: mean ± standard deviation (n); the lowest mean is bold."""
    labels = sorted({n for line in found.values() for n in line})
    best = {n: min(mean(line[n]) for line in found.values() if n in line) for n in labels}

    def text(line: dict[int, dict[int, float]], n: int) -> str:
        if n not in line:
            return ""
        values = list(line[n].values())
        spread = spread_text(*mean_std(values), digits=1)
        return f"{f'**{spread}**' if mean(line[n]) == best[n] else spread} ({len(values)})"

    heads = (title, *(f"{n} label{'s' * (n > 1)}" for n in labels))
    return TextTable(heads, tuple((arm, *(text(line, n) for n in labels)) for arm, line in found.items()))


def mean(values: dict[int, float]) -> float:
    return mean_std(list(values.values()))[0]


def tables(rows: Sequence[Row], measure: str = "test_error") -> list[TextTable]:
    return [table(lines(rows, folder, measure), folder) for folder in folders(rows)]


# --- the figure

LOOKS: dict[str, dict[str, Any]] = {
    "certus": {"color": SERIES[0], "linestyle": "-", "marker": "o", "linewidth": 2.4},
    "certus supervised": {"color": SERIES[0], "linestyle": ":", "marker": "s"},
    "frozen": {"color": SERIES[2], "linestyle": "-.", "marker": "^"},
    "fine-tuned": {"color": SERIES[5], "linestyle": "-.", "marker": "v"},
    "scratch": {"color": SERIES[3], "linestyle": "-.", "marker": "D"},
    "hog + logistic regression": {"color": MUTED, "linestyle": "--", "marker": "x"},
    "features + logistic regression": {"color": SERIES[1], "linestyle": "--", "marker": "o"},
    "features + self-training": {"color": SERIES[4], "linestyle": "--", "marker": "s"},
    "features + label spreading": {"color": SERIES[6], "linestyle": "--", "marker": "^"},
}


def draw(rows: Sequence[Row]) -> Figure:
    """The test error against the labels of each class, a panel for each folder."""
    shown = folders(rows)
    columns = min(3, len(shown))
    height = -(-len(shown) // columns)
    with rc_context(STYLE):
        figure = Figure(figsize=(4.2 * columns, 3.4 * height + 1.1), layout="constrained")
        grid = figure.subplots(height, columns, squeeze=False)
        for axes, folder in zip(grid.flat, shown, strict=False):
            panel(axes, folder, lines(rows, folder))
        for axes in grid.flat[len(shown) :]:
            axes.set_axis_off()
        pairs = [pair for axes in grid.flat for pair in zip(*axes.get_legend_handles_labels(), strict=True)]
        legend = {label: handle for handle, label in pairs}
        figure.legend(legend.values(), legend.keys(), loc="outside lower center", ncols=max(1, columns))
    return figure


def panel(axes: Axes, folder: str, found: Lines) -> None:
    means = []
    for i, (name, line) in enumerate(found.items()):
        labels = sorted(line)
        points = [mean_std(list(line[n].values())) for n in labels]
        apart = 1.02 ** (i - len(found) / 2)  # so that bars of equal labels do not cover each other
        errors, bars = [m for m, _ in points], [std or 0.0 for _, std in points]
        look = LOOKS.get(name.partition(", ")[0], {})
        axes.errorbar([apart * n for n in labels], errors, bars, label=name, markersize=4.5, elinewidth=1.1, **look)
        means += errors
    axes.set_title(folder, loc="left")
    axes.set_xlabel("labels per class")
    axes.set_ylabel("test error (%)")
    axes.set_xscale("log")
    known = sorted({n for line in found.values() for n in line})
    axes.set_xlim(known[0] / 1.4, known[-1] * 1.4)
    axes.xaxis.set_major_locator(FixedLocator(known))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_locator(NullLocator())
    if min(means) > 0:
        axes.set_yscale("log")
        axes.set_ylim(0.88 * min(means), 1.1 * max(means))
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 4, 5, 7)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_locator(NullLocator())
