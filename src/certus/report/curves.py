"""Figures of training, from metrics.jsonl: validation error, losses, time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean
from textwrap import fill
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullLocator

from certus.report.figure import BAND, MUTED, SERIES, ReportFigure, by_epoch, canvas, legend, line, look, rows_of
from certus.report.runs import Arm, kind_of
from certus.report.statistics import Array, band

PHASES = ("batch", "views", "losses", "backward", "optimiser", "followers", "observing", "validation", "saving")
LOGARITHMIC = 3  # a figure whose largest error is more than so many times its least has a logarithmic scale


def learning_curve(arm: Arm) -> dict[str, Array]:
    """The validation error by epoch, over seeds."""
    return band([run.curve("validation_error") for run in arm.runs])


def draw_learning(axes: Axes, arms: Sequence[Arm]) -> list[tuple[Any, ...]]:
    """The validation error by epoch, mean and band over seeds: arm, epoch, mean, std, n."""
    rows: list[tuple[Any, ...]] = []
    for i, arm in enumerate(arms):
        mean = learning_curve(arm)
        if len(mean["epoch"]):
            line(axes, mean, arm.name, look(i))
            rows += rows_of(arm.name, mean)
    by_epoch(axes)
    axes.set_ylabel("validation error (%)")
    if rows:
        scale_errors(axes, [mean for _, _, mean, *_ in rows])
    return rows


def learning(arms: Sequence[Arm]) -> Iterable[ReportFigure]:
    figure, (axes,) = canvas()
    rows = draw_learning(axes, arms)
    legend(axes)
    if rows:
        yield ReportFigure(
            "learning-curves",
            "Validation error while training",
            f"Lower is better; a curve that rises again shows overfitting. {BAND} Nothing is chosen by these errors."
            + " The scale is logarithmic: equal heights are equal ratios." * (axes.get_yscale() == "log"),
            ("arm", "epoch", "mean", "std", "n"),
            rows,
            figure,
        )


def scale_errors(axes: Axes, values: Sequence[float]) -> None:
    """A logarithmic scale where the errors of the first epochs would hide all later differences."""
    least, most = min(values), max(values)
    if not 0 < LOGARITHMIC * least < most:
        axes.set_ylim(bottom=0)
        return
    axes.set_yscale("log")
    axes.set_ylim(0.85 * least, 1.15 * most)
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_locator(NullLocator())


def loss_kinds(arms: Sequence[Arm]) -> list[str]:
    """The kinds of terms that these arms have."""
    return list(dict.fromkeys(kind_of(t) for a in arms for r in a.runs for li in r.lines[-1:] for t in li["losses"]))


def losses(arms: Sequence[Arm]) -> Iterable[ReportFigure]:
    """A panel for each kind of term."""
    kinds = loss_kinds(arms)
    if not kinds:
        return
    figure, panels = canvas(1.0 + 1.9 * len(kinds), len(kinds))
    rows: list[tuple[Any, ...]] = []
    for kind, axes in zip(kinds, panels, strict=True):
        for i, arm in enumerate(arms):
            mean = loss_curve(arm, kind)
            if len(mean["epoch"]):
                line(axes, mean, arm.name, look(i))
                rows += [(kind, *row) for row in rows_of(arm.name, mean)]
        axes.set_title(kind, loc="left")
        axes.set_ylim(bottom=0)
    by_epoch(*panels)
    legend(*panels)
    yield ReportFigure(
        "losses",
        "Losses by term",
        "Each term as it enters the sum, its weight λ included: a consistency loss that rises at first shows λ's ramp. "
        f"With several students, their mean. {BAND}",
        ("term", "arm", "epoch", "mean", "std", "n"),
        rows,
        figure,
    )


def loss_curve(arm: Arm, kind: str) -> dict[str, Array]:
    """A term's loss by epoch, λ included, over seeds; with several students, their mean."""
    curves = []
    for run in arm.runs:
        losses = {li["epoch"]: [v for name, v in li["losses"].items() if kind_of(name) == kind] for li in run.lines}
        curves.append({epoch: fmean(values) for epoch, values in losses.items() if values})
    return band(curves)


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
            mean = learning_curve(arm)
            if len(mean["epoch"]):
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
            "A method that memorises the wrong labels gets worse again towards the end; a robust method does not. "
            f"All validation labels are right. {BAND}",
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
        "Mean over all steps and seeds. Losses are all forward passes, a teacher's draws included; views are the "
        "augmentations; observing is the recording for this page. Runs that are trained side by side slow each other "
        "down, so compare these times with care.",
        ("arm", *PHASES),
        [(a, *(spent[a][p] for p in PHASES)) for a in spent],
        figure,
    )
