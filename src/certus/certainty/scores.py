"""Scores of probabilities: pure functions of (N, C) probabilities and (N,) labels."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import torch
from torch import Tensor


def error(probabilities: Tensor, labels: Tensor) -> float:
    """Percent of wrong answers."""
    return 100.0 * wrong(probabilities, labels).mean().item()


def wrong(probabilities: Tensor, labels: Tensor) -> Tensor:
    """(N,) 1.0 where the most likely class is not the label."""
    return (probabilities.argmax(-1) != labels).double()


def class_errors(probabilities: Tensor, labels: Tensor) -> list[float | None]:
    """Percent of wrong answers among the images of each class; None for a class without images."""
    missed = wrong(probabilities, labels)
    return [
        100.0 * missed[labels == c].mean().item() if (labels == c).any() else None
        for c in range(probabilities.shape[-1])
    ]


def mean_class_errors(answers: Sequence[Tensor], labels: Tensor, classes: Sequence[str]) -> dict[str, float]:
    """The error of each class that has images, as the mean over several networks' probabilities."""
    each = zip(*(class_errors(p, labels) for p in answers), strict=True)
    return {
        name: fmean(e for e in es if e is not None) for name, es in zip(classes, each, strict=True) if None not in es
    }


def negative_log_likelihood(probabilities: Tensor, labels: Tensor) -> float:
    """−mean log p_label; a probability of 0 counts as the smallest float."""
    right = probabilities.double().gather(1, labels[:, None]).squeeze(1)
    return -right.clamp(min=torch.finfo(torch.float32).tiny).log().mean().item()


def brier(probabilities: Tensor, labels: Tensor) -> float:
    """mean Σ_c (p_c − 1[c = label])²: 0 is the best, 2 the worst."""
    truth = torch.nn.functional.one_hot(labels, probabilities.shape[1]).double()
    return (probabilities.double() - truth).square().sum(1).mean().item()


def calibration_error(probabilities: Tensor, labels: Tensor, bins: int = 15) -> float:
    """ECE: Σ_b n_b/N |accuracy_b − confidence_b| over equal bins of the confidence, in percent."""
    confidence = probabilities.double().amax(1)
    right = 1.0 - wrong(probabilities, labels)
    index = (confidence * bins).ceil().long().clamp(1, bins) - 1
    gap = torch.zeros(bins, dtype=torch.float64).index_add_(0, index, right - confidence)
    return 100.0 * gap.abs().sum().item() / len(labels)


def risk_coverage(probabilities: Tensor, labels: Tensor, uncertainty: Tensor, shares: Sequence[float]) -> list[float]:
    """The error (%) when only the most certain share of the images is answered, for each share."""
    missed = wrong(probabilities, labels)[uncertainty.argsort(stable=True)]
    counts = [max(1, round(share * len(labels))) for share in shares]
    return [100.0 * missed[:n].mean().item() for n in counts]
