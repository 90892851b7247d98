"""Figures of what came out, from the answers that runs keep: certainty, calibration, confusions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any

import numpy as np
from torch import Tensor

from certus.certainty.metrics import METRICS
from certus.certainty.scores import calibration_error, risk_coverage, wrong
from certus.report.figure import INK, SERIES, ReportFigure, canvas, legend, look, name_points, slug
from certus.report.runs import Arm
from certus.report.statistics import (
    auroc,
    band,
    bin_size,
    by_class,
    confusion,
    rank_correlation,
    ranked_bins,
    reliability,
)

SHARES = [x / 50 for x in range(1, 51)]
FEW = 10  # images of a bin, below which its accuracy is chance


def mean_of(values: Iterable[float | None]) -> float | None:
    there = [v for v in values if v is not None]
    return fmean(there) if there else None


def told(value: float | None, form: str = ".2f") -> str:
    return "—" if value is None else f"{value:{form}}".replace("-", "−")


def coverage(arms: Sequence[Arm]) -> Iterable[ReportFigure]:
    """Risk-coverage, the mean over seeds."""
    figure, (axes,) = canvas()
    rows: list[tuple[Any, ...]] = []
    for i, arm in enumerate(arms):
        curves = [
            risk_coverage(r.said["probabilities"], r.said["labels"], r.said[r.metric], SHARES) for r in arm.answering
        ]
        if curves:
            mean = np.mean(curves, 0)
            axes.plot([100 * s for s in SHARES], mean, label=arm.name, **look(i))
            rows += [(arm.name, 100 * s, e, len(curves)) for s, e in zip(SHARES, mean.tolist(), strict=True)]
    axes.set_xlabel("answered, most certain first (% of test images)")
    axes.set_ylabel("error among the answered (%)")
    axes.set_ylim(bottom=0)
    legend(axes)
    if rows:
        yield ReportFigure(
            "risk-coverage",
            "What certainty is worth",
            "Let a run answer only the images that it is most certain of (by PE of ten draws; by confidence where the "
            "network has no dropout): the lower and flatter the curve, the more its certainty can be relied on. The "
            "right end is the plain test error.",
            ("arm", "answered (%)", "error (%)", "n"),
            rows,
            figure,
        )


def calibration(arms: Sequence[Arm]) -> Iterable[ReportFigure]:
    """Reliability diagram with ECE."""
    figure, (axes,) = canvas(3.9)
    axes.plot([0, 100], [0, 100], color=INK, linewidth=1, linestyle=":")
    rows: list[tuple[Any, ...]] = []
    for i, arm in enumerate(arms):
        bins: dict[float, list[tuple[float, float, float]]] = {}
        ece = [calibration_error(r.said["probabilities"], r.said["labels"]) for r in arm.answering]
        for run in arm.answering:
            found = reliability(run.said["probabilities"], run.said["labels"])
            for b, *point in zip(*found.values(), strict=True):
                bins.setdefault(b, []).append((point[0], point[1], point[2]))
        merged = []
        for _, points in sorted(bins.items()):
            n = sum(p[0] for p in points)
            merged.append((n, sum(p[0] * p[1] for p in points) / n, sum(p[0] * p[2] for p in points) / n))
        if merged:
            label = f"{arm.name}: ECE {fmean(ece):.1f} %"
            many = [m for m in merged if m[0] >= FEW]
            axes.plot([m[1] for m in many], [m[2] for m in many], marker="o", ms=4, label=label, **look(i))
            rows += [(arm.name, *m, fmean(ece)) for m in merged]
    axes.set_xlabel("confidence (%)")
    axes.set_ylabel("accuracy (%)")
    axes.set_xlim(0, 102)
    axes.set_ylim(0, 102)
    legend(axes)
    if rows:
        yield ReportFigure(
            "reliability",
            "Do probabilities mean what they say?",
            "On the dotted line, answers given with 80 % are right in 80 of 100 cases; below it a run believes itself "
            "too much, above it too little. Test images in 15 bins, the seeds taken together; a bin of "
            f"fewer than {FEW} images says little and is in the CSV alone. ECE is the mean gap.",
            ("arm", "images", "confidence (%)", "accuracy (%)", "ECE (%)"),
            rows,
            figure,
        )


def bins(arm: Arm) -> Iterable[ReportFigure]:
    """The paper's figure: accuracy in bins ranked by each uncertainty; on D_U as there, and on the test images."""
    asked = [r.said_unlabelled for r in arm.runs if r.said_unlabelled]
    why = "The paper's own panel: the images that the run was trained on without their labels, read afterwards. "
    yield from ranked(f"{slug(arm.name)}-unlabelled-bins", "unlabelled images", "D_U", why, asked)
    yield from ranked(f"{slug(arm.name)}-bins", "test images", "D_T", "", [r.said for r in arm.answering])


def ranked(file: str, images: str, short: str, why: str, runs: Sequence[dict[str, Tensor]]) -> Iterable[ReportFigure]:
    """Of what some runs said of these images; seeds that know the labels of more images have more bins."""
    n = min((len(said["labels"]) for said in runs), default=0)
    size = bin_size(n)
    if n < 2 * size:
        return
    figure, (axes,) = canvas(4.0)
    rows: list[tuple[Any, ...]] = []
    names = [name for name in (*METRICS, "confidence") if all(name in said for said in runs)]
    missed = [wrong(said["probabilities"], said["labels"]) for said in runs]
    for i, name in enumerate(names):
        binned = [ranked_bins(1 - m, said[name], size) for m, said in zip(missed, runs, strict=True)]
        accuracy = band([dict(enumerate(b)) for b in binned])["mean"].tolist()
        correlation = mean_of(rank_correlation(b) for b in binned)
        area = mean_of(auroc(m, said[name]) for m, said in zip(missed, runs, strict=True))
        metric = "confidence" if name == "confidence" else name.upper()
        axes.plot(
            range(1, len(accuracy) + 1),
            accuracy,
            label=f"{metric}: ρ {told(correlation)}, AUROC {told(area)}",
            color=SERIES[i],
            linestyle="--" if name in ("pr", "confidence") else "-",
        )
        rows += [(name, b + 1, a, correlation, area) for b, a in enumerate(accuracy)]
    axes.set_xlabel(f"bin of {size} {images} ({short}), most certain first")
    axes.set_ylabel("accuracy (%)")
    axes.set_ylim(top=102)
    legend(axes, columns=2)
    yield ReportFigure(
        file,
        f"Accuracy against uncertainty: {images} ({short})",
        f"{why}A useful certainty begins at 100 % and falls to the right. ρ is Spearman's correlation of bin and "
        "accuracy (−1 falls from bin to bin), AUROC the chance that a wrong answer is less certain than a right one "
        f"(0.5 is worthless). Means over n = {len(runs)}; draws must beat plain confidence to be worth their cost.",
        ("uncertainty", "bin", "accuracy (%)", "Spearman", "AUROC"),
        rows,
        figure,
    )


def class_certainty(arm: Arm) -> Iterable[ReportFigure]:
    """The paper's figure: class accuracy against mean PV."""
    runs = [r for r in arm.answering if "pv" in r.said]
    if not runs:
        return
    count = runs[0].said["probabilities"].shape[1]
    names = runs[0].class_names(count)
    each = []
    for r in runs:
        right, labels = 1 - wrong(r.said["probabilities"], r.said["labels"]), r.said["labels"]
        each.append((by_class(right, labels, count), by_class(r.said["pv"], labels, count)))
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
        "Each point is a class of the test images. Classes that the network knows badly should stand to the right and "
        f"low: it knows which ones it does not know. Means over n = {len(runs)}.",
        ("class", "mean PV", "accuracy (%)"),
        rows,
        figure,
    )


def confusions(arm: Arm) -> Iterable[ReportFigure]:
    """Row i, column j: how many images of class i were called j, over all seeds."""
    runs = arm.answering
    if not runs:
        return
    table = np.sum([confusion(r.said["probabilities"], r.said["labels"]) for r in runs], axis=0)
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
    axes.set_ylabel("is")
    yield ReportFigure(
        f"{slug(arm.name)}-confusion",
        "Which classes are mistaken for which",
        f"Rows are the true classes, columns the answers; test images of {len(runs)} seed{'s' * (len(runs) > 1)} "
        "counted together. Green is right, red is wrong; a dark red cell is a systematic confusion.",
        ("is", "answered", "images"),
        [(names[i], names[j], int(table[i, j])) for i in range(count) for j in range(count)],
        figure,
    )
