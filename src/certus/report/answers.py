"""Figures of the answers to test images: error by certainty, calibration, accuracy in ranked bins, confusions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from torch import Tensor

from certus.certainty.metrics import METRICS, UNDRAWN
from certus.certainty.scores import calibration_error, risk_coverage, wrong
from certus.report.figure import INK, SERIES, ReportFigure, canvas, legend, look, name_points, slug
from certus.report.measures import (
    auroc,
    bin_size,
    by_class,
    confusion,
    rank_correlation,
    ranked_bins,
    reliability,
)
from certus.report.runs import Arm
from certus.report.statistics import band
from certus.report.text_table import number_text

SHARES = [x / 50 for x in range(1, 51)]
FEW = 10  # bins of fewer images are not drawn


def mean_of(values: Iterable[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return fmean(known) if known else None


def coverage_rows(arm: Arm) -> list[tuple[float, float, int]]:
    """For shares of the test images, most certain first: share and error (%), the mean over n seeds, and n."""
    curves = [
        risk_coverage(r.answers["probabilities"], r.answers["labels"], r.answers[r.metric], SHARES)
        for r in arm.answering
    ]
    mean = np.mean(curves, 0).tolist() if curves else []
    return [(100 * share, error, len(curves)) for share, error in zip(SHARES if curves else (), mean, strict=True)]


def draw_coverage(axes: Axes, arms: Sequence[Arm]) -> list[tuple[Any, ...]]:
    """The error among the most certain answers by their share: arm, answered, error, n."""
    rows: list[tuple[Any, ...]] = []
    for i, arm in enumerate(arms):
        if curve := coverage_rows(arm):
            axes.plot([r[0] for r in curve], [r[1] for r in curve], label=arm.name, **look(i))
            rows += [(arm.name, *row) for row in curve]
    axes.set_xlabel("answered, most certain first (% of test images)")
    axes.set_ylabel("error among the answered (%)")
    axes.set_ylim(bottom=0)
    return rows


def coverage(arms: Sequence[Arm]) -> Iterable[ReportFigure]:
    """Risk-coverage."""
    figure, (axes,) = canvas()
    rows = draw_coverage(axes, arms)
    legend(axes)
    if rows:
        yield ReportFigure(
            "risk-coverage",
            "What certainty is worth",
            "The error if a run answers only the images that it is most certain of: by its witness, if it has one; "
            "else by PE of ten draws; by confidence if the network has no dropout. The lower and flatter the curve, "
            "the more useful its certainty. The right end is the test error.",
            ("arm", "answered (%)", "error (%)", "n"),
            rows,
            figure,
        )


def reliability_rows(arm: Arm) -> list[tuple[float, float, float, float]]:
    """The bins of the confidence, the test images of all seeds together: images, confidence, accuracy, and the mean ECE
    of the seeds (%)."""
    points: dict[float, list[tuple[float, float, float]]] = {}
    for run in arm.answering:
        found = reliability(run.answers["probabilities"], run.answers["labels"])
        for b, images, confidence, accuracy in zip(*found.values(), strict=True):
            points.setdefault(b, []).append((images, confidence, accuracy))
    ece = mean_of(calibration_error(r.answers["probabilities"], r.answers["labels"]) for r in arm.answering)
    rows = []
    for _, each in sorted(points.items()):
        n = sum(p[0] for p in each)
        rows.append((n, sum(p[0] * p[1] for p in each) / n, sum(p[0] * p[2] for p in each) / n, ece or 0.0))
    return rows


def calibration(arms: Sequence[Arm]) -> Iterable[ReportFigure]:
    """Reliability diagram with ECE."""
    figure, (axes,) = canvas(3.9)
    axes.plot([0, 100], [0, 100], color=INK, linewidth=1, linestyle=":")
    rows: list[tuple[Any, ...]] = []
    for i, arm in enumerate(arms):
        if bins := reliability_rows(arm):
            drawn = [b for b in bins if b[0] >= FEW]
            label = f"{arm.name}: ECE {bins[0][3]:.1f} %"
            axes.plot([b[1] for b in drawn], [b[2] for b in drawn], marker="o", ms=4, label=label, **look(i))
            rows += [(arm.name, *b) for b in bins]
    axes.set_xlabel("confidence (%)")
    axes.set_ylabel("accuracy (%)")
    axes.set_xlim(0, 102)
    axes.set_ylim(0, 102)
    legend(axes)
    if rows:
        yield ReportFigure(
            "reliability",
            "Calibration",
            "On the dotted line, answers with a confidence of 80 % are right in 80 of 100 cases. Below it a run is too "
            "confident, above it not confident enough. Test images of all seeds in 15 bins; bins of fewer than "
            f"{FEW} images are only in the CSV. ECE is the mean distance to the dotted line.",
            ("arm", "images", "confidence (%)", "accuracy (%)", "ECE (%)"),
            rows,
            figure,
        )


def bins(arm: Arm) -> Iterable[ReportFigure]:
    """The paper's figure: accuracy in bins ranked by each uncertainty, on the unlabelled and on the test images."""
    unlabelled = [r.unlabelled_answers for r in arm.runs if r.unlabelled_answers]
    note = "As in the paper: the images that the run has trained on without their labels. "
    yield from ranked(f"{slug(arm.name)}-unlabelled-bins", "unlabelled images", "D_U", note, unlabelled)
    yield from ranked(f"{slug(arm.name)}-bins", "test images", "D_T", "", [r.answers for r in arm.answering])


@dataclass(frozen=True)
class Ranking:
    """How one uncertainty ranks the answers: accuracy (%) in bins, the mean over seeds; and by seed Spearman's
    correlation of bin and accuracy, and the AUROC of finding wrong answers."""

    accuracy: list[float]
    correlations: list[float]
    areas: list[float]


def rankings(runs: Sequence[dict[str, Tensor]]) -> dict[str, Ranking]:
    """Of every uncertainty that the answers of all these seeds have. A seed with more known labels has more bins."""
    size = bin_size(min((len(answers["labels"]) for answers in runs), default=0))
    missed = [wrong(answers["probabilities"], answers["labels"]) for answers in runs]
    found = {}
    for name in (*METRICS, *UNDRAWN):
        if runs and all(name in answers for answers in runs):
            binned = [ranked_bins(1 - m, answers[name], size) for m, answers in zip(missed, runs, strict=True)]
            areas = [auroc(m, answers[name]) for m, answers in zip(missed, runs, strict=True)]
            found[name] = Ranking(
                band([dict(enumerate(b)) for b in binned])["mean"].tolist(),
                [c for b in binned if (c := rank_correlation(b)) is not None],
                [a for a in areas if a is not None],
            )
    return found


def draw_ranking(axes: Axes, name: str, accuracy: Sequence[float], label: str) -> None:
    """The accuracy in bins ranked by this uncertainty."""
    names = (*METRICS, *UNDRAWN)
    dashes = "--" if name in ("pr", *UNDRAWN) else "-"
    axes.plot(range(1, len(accuracy) + 1), accuracy, label=label, color=SERIES[names.index(name)], linestyle=dashes)


def metric_text(name: str) -> str:
    return name if name in UNDRAWN else name.upper()


def ranked(file: str, images: str, short: str, note: str, runs: Sequence[dict[str, Tensor]]) -> Iterable[ReportFigure]:
    """From the answers of several seeds to these images."""
    n = min((len(answers["labels"]) for answers in runs), default=0)
    size = bin_size(n)
    if n < 2 * size:
        return
    figure, (axes,) = canvas(4.0)
    rows: list[tuple[Any, ...]] = []
    for name, ranking in rankings(runs).items():
        correlation, area = mean_of(ranking.correlations), mean_of(ranking.areas)
        label = f"{metric_text(name)}: ρ {number_text(correlation)}, AUROC {number_text(area)}"
        draw_ranking(axes, name, ranking.accuracy, label)
        rows += [(name, b + 1, a, correlation, area) for b, a in enumerate(ranking.accuracy)]
    axes.set_xlabel(f"bin of {size} {images} ({short}), most certain first")
    axes.set_ylabel("accuracy (%)")
    axes.set_ylim(top=102)
    legend(axes, columns=2)
    yield ReportFigure(
        file,
        f"Accuracy against uncertainty: {images} ({short})",
        f"{note}A useful certainty starts at 100 % and falls to the right. ρ is Spearman's correlation of bin and "
        "accuracy (−1: accuracy falls from bin to bin). AUROC is the probability that a wrong answer is less certain "
        f"than a right one (0.5: no better than chance). Means over n = {len(runs)}. Confidence and "
        "witness need no draws: a metric that needs them should be better.",
        ("uncertainty", "bin", "accuracy (%)", "Spearman", "AUROC"),
        rows,
        figure,
    )


def class_certainty(arm: Arm) -> Iterable[ReportFigure]:
    """The paper's figure: class accuracy against mean PV."""
    runs = [r for r in arm.answering if "pv" in r.answers]
    if not runs:
        return
    count = runs[0].answers["probabilities"].shape[1]
    names = runs[0].class_names(count)
    each = []
    for r in runs:
        right, labels = 1 - wrong(r.answers["probabilities"], r.answers["labels"]), r.answers["labels"]
        each.append((by_class(right, labels, count), by_class(r.answers["pv"], labels, count)))
    rows = []
    for c, name in enumerate(names):
        accuracy, pv = mean_of(e[0][c] for e in each), mean_of(e[1][c] for e in each)
        if accuracy is not None and pv is not None:
            rows.append((name, pv, 100 * accuracy))
    figure, (axes,) = canvas()
    axes.scatter([r[1] for r in rows], [r[2] for r in rows], s=26, color=SERIES[0])
    axes.margins(0.12)
    if len(rows) <= 30:
        name_points(axes, rows)
    axes.set_xlabel("mean PV of the class")
    axes.set_ylabel("accuracy of the class (%)")
    yield ReportFigure(
        f"{slug(arm.name)}-class-pv",
        "Class accuracy against mean PV",
        "Each point is a class of the test images. Classes with a low accuracy should have a high uncertainty: they "
        f"should be at the lower right. Means over n = {len(runs)}.",
        ("class", "mean PV", "accuracy (%)"),
        rows,
        figure,
    )


def confusions(arm: Arm) -> Iterable[ReportFigure]:
    """Row i, column j: how many images of class i were answered j, over all seeds."""
    runs = arm.answering
    if not runs:
        return
    table = np.sum([confusion(r.answers["probabilities"], r.answers["labels"]) for r in runs], axis=0)
    count = len(table)
    names = runs[0].class_names(count)
    share = table / np.maximum(table.sum(1, keepdims=True), 1)
    figure, (axes,) = canvas(4.6)
    for i, j in zip(*np.nonzero(table), strict=True):
        colour = SERIES[2] if i == j else SERIES[1]
        axes.fill([j, j + 1, j + 1, j], [i, i, i + 1, i + 1], color=colour, alpha=0.06 + 0.5 * share[i, j], lw=0)
        if count <= 15:
            axes.text(j + 0.5, i + 0.5, f"{table[i, j]:g}", ha="center", va="center", fontsize=9 if count <= 10 else 7)
    axes.set_xlim(0, count)
    axes.set_ylim(count, 0)
    axes.set_aspect("equal")
    axes.grid(visible=False)
    if count <= 30:
        long = max(map(len, names)) > 3
        axes.set_xticks(np.arange(count) + 0.5, names, rotation=60 if long else 0, ha="right" if long else "center")
        axes.set_yticks(np.arange(count) + 0.5, names)
    axes.set_xlabel("answered")
    axes.set_ylabel("true class")
    yield ReportFigure(
        f"{slug(arm.name)}-confusion",
        "Which classes are mistaken for which",
        f"Rows are the true classes, columns the answers; test images of {len(runs)} seed{'s' * (len(runs) > 1)} "
        "counted together. Green is right, red is wrong; a dark red cell is a frequent confusion.",
        ("true class", "answered", "images"),
        [(names[i], names[j], int(table[i, j])) for i in range(count) for j in range(count)],
        figure,
    )
