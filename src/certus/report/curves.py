"""Figures of what happened while training, from metrics.jsonl: errors, losses, time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean
from textwrap import fill
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullLocator

from certus.report.figure import BAND, MUTED, SERIES, ReportFigure, by_epoch, canvas, legend, line, look, rows_of
from certus.report.runs import Arm, RunRecord, kind_of
from certus.report.statistics import band

PHASES = ("batch", "views", "losses", "backward", "optimiser", "followers", "observing", "validation", "saving")
MANIFOLD = 3  # the largest error of a figure is more than so many times the least


def learning(arms: Sequence[Arm]) -> Iterable[ReportFigure]:
    figure, (axes,) = canvas()
    rows: list[tuple[Any, ...]] = []
    for i, arm in enumerate(arms):
        curves = [c for run in arm.runs if (c := run.curve("validation_error"))]
        if curves:
            mean = band(curves)
            line(axes, mean, arm.name, look(i))
            rows += rows_of(arm.name, mean)
    by_epoch(axes)
    axes.set_ylabel("validation error (%)")
    legend(axes)
    if rows:
        shares = by_shares(axes, [mean for _, _, mean, *_ in rows])
        yield ReportFigure(
            "learning-curves",
            "Validation error while training",
            f"Lower is better; a curve that turns up again has begun to overfit. {BAND} Nothing is chosen by it."
            + " The scale is logarithmic: the same height is the same share of the errors." * shares,
            ("arm", "epoch", "mean", "std", "n"),
            rows,
            figure,
        )


def by_shares(axes: Axes, values: Sequence[float]) -> bool:
    """A logarithmic scale, where the first epochs would otherwise press all later differences into one line."""
    least, most = min(values), max(values)
    if not 0 < MANIFOLD * least < most:
        axes.set_ylim(bottom=0)
        return False
    axes.set_yscale("log")
    axes.set_ylim(0.85 * least, 1.15 * most)
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_locator(NullLocator())
    return True


def losses(arms: Sequence[Arm]) -> Iterable[ReportFigure]:
    """A panel for each kind of term."""
    kinds = list(dict.fromkeys(kind_of(t) for a in arms for r in a.runs for li in r.lines[-1:] for t in li["losses"]))
    if not kinds:
        return
    figure, panels = canvas(1.0 + 1.9 * len(kinds), len(kinds))
    rows: list[tuple[Any, ...]] = []
    for kind, axes in zip(kinds, panels, strict=True):
        for i, arm in enumerate(arms):
            curves = [c for run in arm.runs if (c := loss_curve(run, kind))]
            if curves:
                mean = band(curves)
                line(axes, mean, arm.name, look(i))
                rows += [(kind, *row) for row in rows_of(arm.name, mean)]
        axes.set_title(kind, loc="left")
        axes.set_ylim(bottom=0)
    by_epoch(*panels)
    legend(*panels)
    yield ReportFigure(
        "losses",
        "Losses by term",
        "Each term as it enters the sum, its weight λ included, so a consistency loss that rises at first is λ's ramp. "
        f"Of several students, their mean. {BAND}",
        ("term", "arm", "epoch", "mean", "std", "n"),
        rows,
        figure,
    )


def loss_curve(run: RunRecord, kind: str) -> dict[int, float]:
    found = {}
    for li in run.lines:
        if values := [v for name, v in li["losses"].items() if kind_of(name) == kind]:
            found[li["epoch"]] = fmean(values)
    return found


def noise(arms: Sequence[Arm]) -> Iterable[ReportFigure]:
    """A panel for each share of wrong labels, where runs differ in it."""
    levels = sorted({arm.config.label_noise for arm in arms})
    if len(levels) < 2:
        return
    methods = list(dict.fromkeys(arm.name.replace(f", label noise {a_noise(arm)}", "") for arm in arms))
    figure, panels = canvas(1.0 + 2.1 * len(levels), len(levels))
    rows: list[tuple[Any, ...]] = []
    for level, axes in zip(levels, panels, strict=True):
        for arm in (a for a in arms if a.config.label_noise == level):
            name = arm.name.replace(f", label noise {a_noise(arm)}", "")
            curves = [c for run in arm.runs if (c := run.curve("validation_error"))]
            if curves:
                mean = band(curves)
                line(axes, mean, name, look(methods.index(name)))
                rows += [(level, *row) for row in rows_of(name, mean)]
        axes.set_title(f"{100 * level:g} % of the labels replaced by random ones", loc="left")
        axes.set_ylabel("validation error (%)")
        axes.set_ylim(bottom=0)
    by_epoch(*panels)
    legend(*panels)
    if rows:
        yield ReportFigure(
            "label-noise",
            "Under wrong labels",
            "A method that learns the wrong labels by heart gets worse again towards the end; one that resists stays "
            f"down. The validation labels are right ones. {BAND}",
            ("label noise", "arm", "epoch", "mean", "std", "n"),
            rows,
            figure,
        )


def a_noise(arm: Arm) -> str:
    return f"{arm.config.label_noise:g}"


def times(arms: Sequence[Arm]) -> Iterable[ReportFigure]:
    """Milliseconds per step by phase, stacked."""
    spent: dict[str, dict[str, float]] = {}
    for arm in arms:
        steps = sum(run.lines[-1]["step"] for run in arm.runs if run.lines and "time" in run.lines[-1])
        if steps:
            lines = [li["time"] for run in arm.runs for li in run.lines if "time" in li]
            spent[arm.name] = {p: 1000 * sum(li.get(p, 0.0) for li in lines) / steps for p in PHASES}
    if not spent:
        return
    figure, (axes,) = canvas(1.5 + 0.38 * len(spent))
    left = dict.fromkeys(spent, 0.0)
    for i, phase in enumerate(PHASES):
        values = [spent[a][phase] for a in spent]
        colour = MUTED if i == len(SERIES) else SERIES[i]
        axes.barh(
            [fill(a, 26) for a in spent], values, left=list(left.values()), color=colour, label=phase, edgecolor="none"
        )
        left = {a: left[a] + spent[a][phase] for a in spent}
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("milliseconds per step")
    legend(axes, columns=4)
    yield ReportFigure(
        "time",
        "Where the time went",
        "Mean over all steps and seeds. The losses hold every forward pass, a teacher's draws included; views are the "
        "augmentations; observing is what the records of this page cost. Runs that were trained side by side share a "
        "machine, so compare lengths with care.",
        ("arm", *PHASES),
        [(a, *(spent[a][p] for p in PHASES)) for a in spent],
        figure,
    )
