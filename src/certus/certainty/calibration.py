"""Know when to be silent: a temperature for probabilities, and a threshold for answers, both from held-out labels.

Let u be the uncertainty of an answer. Pictures with u < t are answered, and R(t) = P(wrong | u < t) is the error among
them. From n held-out labels, J thresholds are looked at: t_j = the uncertainty of picture ⌊nj/J⌋ + 1 in ascending
order, and t_J = ∞. Given t_j, the pictures below it are independent draws of what would be answered. So their wrong
answers are binomial, and the Clopper–Pearson bound holds for R(t_j). Each bound has confidence 1 − δ/J, so all J hold
at once with probability 1 − δ (Bonferroni). Hence any of them may be chosen after looking, for any wanted error, as
often as one likes. Nothing is assumed of the network or of u. New pictures must come from the same source.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from scipy.special import betaincinv
from torch import Tensor

from certus.certainty.metrics import METRICS
from certus.certainty.scores import negative_log_likelihood, wrong

FEW, MANY = 10, 20  # thresholds that are looked at
ENOUGH = 1000  # labels for the finer grid
COLDEST, HOTTEST = 0.01, 100.0  # temperatures


@dataclass(frozen=True)
class Level:
    """What is known about answering only below one threshold."""

    threshold: float | None  # answered: uncertainty < threshold; None: everything is answered
    answered: int  # held-out pictures
    wrong: int  # of those
    bound: float  # with the wanted confidence, at most this share of the answers is wrong


@dataclass(frozen=True)
class Calibration:
    """When these weights answer, and how sure they are of it."""

    weights: str  # digest of what was calibrated: it serves no other weights
    data: str  # where the held-out pictures came from
    labels: int  # how many they were
    metric: str  # the uncertainty that decides
    draws: int  # that it was computed from; 0: it needs none
    temperature: float
    log_loss: tuple[float, float]  # on the held-out labels, before and after
    error: float  # the wanted share of wrong answers
    confidence: float
    chosen: Level
    levels: tuple[Level, ...]

    def answers(self, uncertainty: Mapping[str, Tensor], draws: int) -> Tensor | None:
        """(N,) bool: which pictures are answered. None if that cannot be known from so many draws."""
        if self.metric not in uncertainty or self.draws not in (0, draws):
            return None
        u = uncertainty[self.metric]
        return torch.ones_like(u, dtype=torch.bool) if self.chosen.threshold is None else u < self.chosen.threshold


def fit(
    probabilities: Tensor,
    uncertainty: Tensor,
    labels: Tensor,
    *,
    metric: str,
    draws: int,
    error: float,
    confidence: float,
    weights: str = "",
    data: str = "",
) -> Calibration | list[Level]:
    """The calibration for a wanted share of wrong answers; the levels that there are if none can promise it."""
    found = levels(uncertainty, wrong(probabilities, labels).bool(), confidence)
    chosen = widest(found, error)
    if chosen is None:
        return found
    temperature = best_temperature(probabilities, labels)
    losses = [negative_log_likelihood(p, labels) for p in (probabilities, tempered(probabilities, temperature))]
    return Calibration(
        weights=weights,
        data=data,
        labels=len(labels),
        metric=metric,
        draws=draws if metric in METRICS else 0,
        temperature=temperature,
        log_loss=(losses[0], losses[1]),
        error=error,
        confidence=confidence,
        chosen=chosen,
        levels=tuple(found),
    )


def tempered(probabilities: Tensor, temperature: float) -> Tensor:
    """p^(1/T) / Σ p^(1/T): T > 1 is less sure. The order of the classes stays."""
    logs = probabilities.double().clamp(min=torch.finfo(torch.float32).tiny).log()
    return (logs / temperature).softmax(-1).to(probabilities.dtype)


def best_temperature(probabilities: Tensor, labels: Tensor) -> float:
    """The temperature with the least log-loss on these labels.

    In β = 1/T the loss mean[log Σ_c p_c^β − β log p_y] is convex. Its derivative mean[Σ_c q_c log p_c − log p_y] with
    q = p^β / Σ p^β rises with β, so its zero is found by halving.
    """
    logs = probabilities.double().clamp(min=torch.finfo(torch.float32).tiny).log()  # (N, C)
    right = logs.gather(1, labels[:, None]).mean()
    low, high = 1 / HOTTEST, 1 / COLDEST
    for _ in range(60):
        middle = math.sqrt(low * high)
        slope = ((middle * logs).softmax(1) * logs).sum(1).mean() - right
        low, high = (low, middle) if slope > 0 else (middle, high)
    return 1 / math.sqrt(low * high)


def upper_bound(wrong: int, answered: int, confidence: float) -> float:
    """Clopper–Pearson: the largest share r for which so few wrong answers have a probability of 1 − confidence."""
    return 1.0 if wrong >= answered else float(betaincinv(wrong + 1, answered - wrong, confidence))


def looked_at(labels: int) -> int:
    """J, the number of thresholds. It depends on the number of labels alone."""
    return MANY if labels >= ENOUGH else FEW


def levels(uncertainty: Tensor, mistaken: Tensor, confidence: float) -> list[Level]:
    """Every threshold that is looked at, from the strictest; all bounds hold at once with this confidence.

    uncertainty (N,), mistaken (N,) bool. Levels that answer nothing are left out.
    """
    n, count = len(uncertainty), looked_at(len(uncertainty))
    ordered = uncertainty.double().sort().values
    found = []
    for j in range(1, count + 1):
        k = n * j // count
        threshold = float(ordered[k]) if k < n else None
        below = torch.ones_like(mistaken) if threshold is None else uncertainty.double() < threshold
        answered, mistakes = int(below.sum()), int((mistaken & below).sum())
        if answered:
            share = 1 - (1 - confidence) / count
            found.append(Level(threshold, answered, mistakes, upper_bound(mistakes, answered, share)))
    return found


def widest(found: Sequence[Level], error: float) -> Level | None:
    """The level that answers most, of those whose bound is at most `error`; None: nothing can be promised."""
    return max((level for level in found if level.bound <= error), key=lambda level: level.answered, default=None)


def least_bound(labels: int, confidence: float) -> float:
    """The smallest error that so many labels can promise: if everything is answered and nothing is wrong."""
    return upper_bound(0, labels, 1 - (1 - confidence) / looked_at(labels)) if labels else 1.0
