"""Measures of a run's answers: bins ranked by uncertainty, AUROC, reliability, confusions. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from scipy.stats import rankdata, spearmanr
from torch import Tensor

from certus.certainty.scores import wrong
from certus.report.statistics import Array


def bin_size(n: int) -> int:
    """100 images as in the paper, fewer where that would leave fewer than ten bins."""
    return 100 if n >= 1000 else max(1, n // 10)


def ranked_bins(right: Tensor, uncertainty: Tensor, size: int) -> list[float]:
    """Percent of right answers in bins of `size` images, the most certain first; an incomplete last bin is left out."""
    ordered = right.double()[uncertainty.argsort(stable=True)]
    return [100.0 * part.mean().item() for part in ordered.split(size) if len(part) == size]


def rank_correlation(accuracy: Sequence[float]) -> float | None:
    """Spearman's correlation of the bin's index and its accuracy: −1 if accuracy falls from bin to bin."""
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
    index = (confidence * bins).ceil().long().clamp(1, bins) - 1
    held = [b for b in range(bins) if (index == b).any()]
    return {
        "bin": [float(b) for b in held],
        "images": [float((index == b).sum()) for b in held],
        "confidence": [100.0 * confidence[index == b].mean().item() for b in held],
        "accuracy": [100.0 * right[index == b].mean().item() for b in held],
    }


def confusion(probabilities: Tensor, labels: Tensor) -> Array:
    """(C, C) how many images of class i were answered j."""
    classes = probabilities.shape[1]
    return torch.bincount(labels * classes + probabilities.argmax(1), minlength=classes**2).view(classes, -1).numpy()


def by_class(values: Tensor, labels: Tensor, classes: int) -> list[float | None]:
    """The mean over the images of each class; None for a class without images."""
    return [values[labels == c].double().mean().item() if (labels == c).any() else None for c in range(classes)]


def certain_mistakes(probabilities: Tensor, labels: Tensor, uncertainty: Tensor, count: int) -> list[int]:
    """Indices of the wrong answers, the most certain first."""
    order = uncertainty.argsort(stable=True)
    return order[wrong(probabilities, labels)[order] > 0][:count].tolist()


def least_certain(uncertainty: Tensor, count: int) -> list[int]:
    return uncertainty.argsort(stable=True, descending=True)[:count].tolist()
