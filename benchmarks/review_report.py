"""Tables and figure of benchmarks/review.py, from its rows."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from resumable import Row

from certus.report.figure import STYLE
from certus.report.statistics import mean_std, paired
from certus.report.text_table import TextTable, spread_text

NAMES = {"svhn": "SVHN", "cifar10": "CIFAR-10", "fashion-mnist": "Fashion-MNIST"}
ARMS = ("certus", "uncertain", "random")
WAYS = ("certus", "certus, confident", "cleanlab", "cleanlab, plain regression", "training loss")
NOISES = ("random 10 %", "random 20 %", "random 30 %", "similar 20 %")
GREEN, LIGHT, RED, AMBER, GREY = "#0b6e4f", "#7fc8a9", "#c8553d", "#e0a458", "#7a7a7a"
COLOURS = dict(zip(ARMS, (GREEN, RED, GREY), strict=True)) | dict(
    zip(WAYS, (GREEN, LIGHT, RED, AMBER, GREY), strict=True)
)


def tables(rounds: Sequence[Row], suspects: Sequence[Row]) -> dict[str, TextTable]:
    """By title."""
    n = len({row["seed"] for row in rounds})
    m = len({row["seed"] for row in suspects})
    return {
        f"Test error (%) against labels, mean ± standard deviation, n = {n} seeds.": rounds_table(rounds),
        f"Wrong labels found: precision / recall / average precision (%), mean over n = {m} seeds.": ways_table(
            suspects
        ),
    }


def columns_of(rounds: Sequence[Row]) -> list[str]:
    return [name for name in rounds[0] if name.startswith("error_")]


def rounds_table(rounds: Sequence[Row]) -> TextTable:
    """A row for each data set and strategy; the last column is the mean over all rounds, paired with random by seed."""
    columns = columns_of(rounds)
    rows = []
    for data in NAMES:
        for arm in ARMS:
            mine = [row for row in rounds if (row["data"], row["arm"]) == (data, arm)]
            if mine:
                cells = [spread_text(*mean_std([float(row[c]) for row in mine])) for c in columns]
                rows.append((f"{NAMES[data]}, {arm}", *cells, difference(rounds, data, arm, columns[1:])))
    heads = ("", *(f"{c.removeprefix('error_')} labels" for c in columns), "all rounds − random")
    return TextTable(heads, tuple(rows))


def difference(rounds: Sequence[Row], data: str, arm: str, columns: Sequence[str]) -> str:
    def means(name: str) -> dict[int, float]:
        mine = [row for row in rounds if (row["data"], row["arm"]) == (data, name)]
        return {int(row["seed"]): fmean(float(row[c]) for c in columns) for row in mine}

    return "" if arm == "random" else str(paired(means(arm), means("random")))


def ways_table(suspects: Sequence[Row]) -> TextTable:
    rows = []
    for data in NAMES:
        for noise in NOISES:
            cells = [cell(suspects, data, noise, way) for way in WAYS]
            if any(cells):
                rows.append((f"{NAMES[data]}, {noise}", *cells))
    return TextTable(("", *WAYS), tuple(rows))


def cell(suspects: Sequence[Row], data: str, noise: str, way: str) -> str:
    mine = [row for row in suspects if (row["data"], row["noise"], row["arm"]) == (data, noise, way)]
    measures = ("precision", "recall", "average_precision")
    return " / ".join(f"{fmean(float(row[m]) for row in mine):.0f}" for m in measures) if mine else ""


def draw(rounds: Sequence[Row], suspects: Sequence[Row]) -> Figure:
    """Above the error against labels, below precision against recall, a panel for each data set."""
    with rc_context(STYLE):
        figure = Figure(figsize=(11, 6.4), layout="constrained")
        grid = figure.subplots(2, len(NAMES), squeeze=False)
        for i, data in enumerate(NAMES):
            draw_rounds(grid[0][i], [row for row in rounds if row["data"] == data], NAMES[data])
            draw_ways(grid[1][i], [row for row in suspects if row["data"] == data])
        for row in grid:
            row[0].legend(fontsize=8)
    return figure


def draw_rounds(axes: Axes, rounds: Sequence[Row], title: str) -> None:
    for arm in ARMS:
        mine = [row for row in rounds if row["arm"] == arm]
        if mine:
            points = {int(c.removeprefix("error_")): mean_std([float(r[c]) for r in mine]) for c in columns_of(rounds)}
            means, bars = [m for m, _ in points.values()], [s or 0.0 for _, s in points.values()]
            apart = 2 * (ARMS.index(arm) - 1)
            at = [labels + apart for labels in points]
            axes.errorbar(at, means, bars, label=arm, color=COLOURS[arm], marker="o", markersize=4, elinewidth=1)
    axes.set_title(title, loc="left")
    axes.set_xlabel("labels")
    axes.set_ylabel("test error (%)")


def draw_ways(axes: Axes, suspects: Sequence[Row]) -> None:
    for way in WAYS:
        mine = [row for row in suspects if row["arm"] == way]
        found = {noise: [row for row in mine if row["noise"] == noise] for noise in NOISES}
        points = [
            (fmean(float(r["recall"]) for r in rows), fmean(float(r["precision"]) for r in rows))
            for rows in found.values()
            if rows
        ]
        if points:
            axes.scatter(*zip(*points, strict=True), label=way, color=COLOURS[way], s=22)
    axes.set_xlabel("recall of wrong labels (%)")
    axes.set_ylabel("precision (%)")
    axes.set_xlim(0, 100)
    axes.set_ylim(0, 100)
