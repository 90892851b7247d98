"""The numbers behind the report's figures: pure functions, each tested against a naive reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt
from statistics import fmean, stdev
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import rankdata, spearmanr, ttest_rel
from scipy.stats import t as student_t
from torch import Tensor

from certus.certainty.scores import wrong

PRELIMINARY = 3  # fewer seeds than this say little
Array = NDArray[Any]


def mean_std(values: Sequence[float]) -> tuple[float, float | None]:
    return fmean(values), stdev(values) if len(values) > 1 else None


def paired(values: Mapping[int, float], reference: Mapping[int, float]) -> dict[str, Any]:
    """Mean difference over the seeds that both have, with Student's 95 % interval."""
    seeds = sorted(values.keys() & reference.keys())
    differences = [values[s] - reference[s] for s in seeds]
    if not differences:
        return {"n": 0, "mean": None, "low": None, "high": None}
    mean, std = mean_std(differences)
    if std is None:
        return {"n": 1, "mean": mean, "low": None, "high": None}
    half = float(student_t.ppf(0.975, len(seeds) - 1)) * std / sqrt(len(seeds))
    return {"n": len(seeds), "mean": mean, "low": mean - half, "high": mean + half}


def difference_text(d: Mapping[str, Any] | None) -> str:
    """A paired difference with its interval; nothing where there is none."""
    if not d or d["mean"] is None:
        return ""
    return f"{d['mean']:+.2f}" + (f" [{d['low']:+.2f}, {d['high']:+.2f}]" if d["low"] is not None else "")


def mean_text(v: Mapping[str, Any]) -> str:
    return f"{v['mean']:.2f}" + (f" ± {v['std']:.2f}" if v["std"] is not None else "")


def compared(values: Mapping[int, float], reference: Mapping[int, float] | None) -> dict[str, Any]:
    """A row of the table: mean ± std over seeds, and against the reference paired difference, p, error reduction."""
    mean, std = mean_std(list(values.values())) if values else (None, None)
    row: dict[str, Any] = {"n": len(values), "mean": mean, "std": std, "preliminary": len(values) < PRELIMINARY}
    if reference is None:
        return row
    seeds = sorted(values.keys() & reference.keys())
    mine, theirs = [values[s] for s in seeds], [reference[s] for s in seeds]
    base = sum(theirs)
    reduction = 100.0 * (base - sum(mine)) / base if base else None
    return row | {"difference": paired(values, reference), "p": paired_p(mine, theirs), "reduction": reduction}


def paired_p(mine: Sequence[float], theirs: Sequence[float]) -> float | None:
    """Of the paired t-test; None where it says nothing: fewer than two seeds, or differences that are all the same."""
    differences = np.subtract(mine, theirs)
    if len(differences) < 2 or np.ptp(differences) <= 1e-12 * np.abs(differences).max():
        return None
    return float(ttest_rel(mine, theirs).pvalue)


def band(curves: Sequence[Mapping[int, float]]) -> dict[str, Array]:
    """Curves by epoch, over seeds: at each epoch mean, std and how many have come so far."""
    epochs = sorted({e for curve in curves for e in curve})
    there = [[c[e] for c in curves if e in c] for e in epochs]
    return {
        "epoch": np.array(epochs),
        "mean": np.array([np.mean(v) for v in there]),
        "std": np.array([np.std(v, ddof=1) if len(v) > 1 else 0.0 for v in there]),
        "n": np.array([len(v) for v in there]),
    }


def bin_size(n: int) -> int:
    """100 images as in the paper, fewer where that would leave fewer than ten bins."""
    return 100 if n >= 1000 else max(1, n // 10)


def ranked_bins(right: Tensor, uncertainty: Tensor, size: int) -> list[float]:
    """Percent of right answers in bins of `size` images by ascending uncertainty; a rest that fills no bin is left."""
    ordered = right.double()[uncertainty.argsort(stable=True)]
    return [100.0 * part.mean().item() for part in ordered.split(size) if len(part) == size]


def rank_correlation(accuracy: Sequence[float]) -> float | None:
    """Spearman's, of the bin's index and its accuracy: −1 is accuracy that falls from bin to bin."""
    if len(accuracy) < 2 or np.ptp(accuracy) == 0:
        return None
    return float(spearmanr(np.arange(len(accuracy)), accuracy).statistic)


def auroc(missed: Tensor, uncertainty: Tensor) -> float | None:
    """The probability that a wrong answer is less certain than a right one, ties counting half."""
    wrong_ones = missed.bool().numpy()
    m, n = int(wrong_ones.sum()), int((~wrong_ones).sum())
    if not m or not n:
        return None
    ranks = rankdata(uncertainty.double().numpy())
    return float((ranks[wrong_ones].sum() - m * (m + 1) / 2) / (m * n))


def reliability(probabilities: Tensor, labels: Tensor, bins: int = 15) -> dict[str, list[float]]:
    """Count, mean confidence and accuracy (%) of each equal bin of the confidence that holds an image."""
    confidence = probabilities.double().amax(1)
    right = 1.0 - wrong(probabilities, labels)
    place = (confidence * bins).ceil().long().clamp(1, bins) - 1
    held = [b for b in range(bins) if (place == b).any()]
    return {
        "bin": [float(b) for b in held],
        "images": [float((place == b).sum()) for b in held],
        "confidence": [100.0 * confidence[place == b].mean().item() for b in held],
        "accuracy": [100.0 * right[place == b].mean().item() for b in held],
    }


def confusion(probabilities: Tensor, labels: Tensor) -> Array:
    """(C, C) how many images of class i were called j."""
    classes = probabilities.shape[1]
    return torch.bincount(labels * classes + probabilities.argmax(1), minlength=classes**2).view(classes, -1).numpy()


def by_class(values: Tensor, labels: Tensor, classes: int) -> list[float | None]:
    """The mean over the images of each class; None for a class without images."""
    return [values[labels == c].double().mean().item() if (labels == c).any() else None for c in range(classes)]


def certain_mistakes(probabilities: Tensor, labels: Tensor, uncertainty: Tensor, count: int) -> list[int]:
    """Places of the wrong answers, the most certain first."""
    order = uncertainty.argsort(stable=True)
    return order[wrong(probabilities, labels)[order] > 0][:count].tolist()


def least_certain(uncertainty: Tensor, count: int) -> list[int]:
    return uncertainty.argsort(stable=True, descending=True)[:count].tolist()
