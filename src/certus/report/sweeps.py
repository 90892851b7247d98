"""The picture of a sweep: the best error so far by trial, and the error at each value of each setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from certus.methods.recipe import shown
from certus.report.figure import MUTED, SERIES, STYLE, put_picture
from certus.text import printable

ERROR = "validation error (%)"
LOWEST = 0.9  # share of the errors that a panel shows; the worst few would hide the others


@dataclass(frozen=True)
class SearchPicture:
    """What is drawn of one method, as a row of panels."""

    name: str
    errors: Mapping[int, float]  # of the finished trials, by number
    pruned: Mapping[int, float]  # the last error of the others
    values: Mapping[str, Mapping[int, Any]]  # of each setting, by trial
    choices: Mapping[str, Sequence[Any]]  # of the settings that are no ranges
    log: Sequence[str]  # settings on a logarithmic scale
    best: int | None


def draw_sweep(searches: Sequence[SearchPicture], path: Path) -> None:
    """Write the picture as PNG."""
    columns = 1 + max(len(search.values) for search in searches)
    with rc_context(STYLE):
        figure = Figure(figsize=(max(6.0, 3.2 * columns), 3.1 * len(searches)), layout="constrained")
        grid = figure.add_gridspec(len(searches), columns)
        for i, search in enumerate(searches):
            history = figure.add_subplot(grid[i, 0])
            draw_history(history, search)
            for j, name in enumerate(search.values, 1):
                draw_setting(figure.add_subplot(grid[i, j], sharey=history), search, name)
        put_picture(path, figure)


def draw_history(axes: Axes, search: SearchPicture) -> None:
    points(axes, search, {number: number for number in (*search.errors, *search.pruned)})
    numbers = sorted(search.errors)
    if numbers:
        best = list(accumulate((search.errors[number] for number in numbers), min))
        axes.step(numbers, best, where="post", color=SERIES[0], label="best so far")
        axes.set_ylim(*visible(list(search.errors.values())))
    axes.set_title(printable(search.name))
    axes.set_xlabel("trial")
    axes.set_ylabel(ERROR)
    axes.legend(loc="best")


def draw_setting(axes: Axes, search: SearchPicture, name: str) -> None:
    values = search.values[name]
    if names := list(search.choices.get(name, ())):
        values = {number: names.index(value) for number, value in values.items()}
        axes.set_xticks(range(len(names)), [printable(shown(value)) for value in names])
        axes.set_xlim(-0.5, len(names) - 0.5)
    elif name in search.log:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
    points(axes, search, values)
    axes.set_xlabel(name.replace("_", " "))


def points(axes: Axes, search: SearchPicture, x: Mapping[int, Any]) -> None:
    """Finished trials as dots, pruned ones as crosses, the best one circled."""
    _, top = visible(list(search.errors.values()))
    low = {number: min(error, top) for number, error in search.pruned.items()}  # those above are at the upper edge
    kinds: tuple[tuple[Mapping[int, float], dict[str, Any]], ...] = (
        (
            {n: e for n, e in search.errors.items() if e <= top},
            {"marker": "o", "s": 22, "color": SERIES[0], "label": "finished"},
        ),
        (low, {"marker": "x", "s": 18, "color": MUTED, "label": "pruned"}),
    )
    for errors, look in kinds:
        if errors:
            at = [x[number] for number in errors]
            axes.scatter(at, list(errors.values()), alpha=0.7, linewidths=1, clip_on=False, **look)
    if search.best is not None:
        circle: dict[str, Any] = {"s": 90, "facecolors": "none", "edgecolors": SERIES[1], "label": "best"}
        axes.scatter([x[search.best]], [search.errors[search.best]], **circle)


def visible(errors: Sequence[float]) -> tuple[float, float]:
    """The axis: from the least error to that below which most are."""
    ordered = sorted(errors) or [0.0, 100.0]
    high = ordered[int(LOWEST * (len(ordered) - 1))]
    margin = 0.1 * (high - ordered[0]) or 1.0
    return ordered[0] - margin, high + margin
