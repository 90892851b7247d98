"""Uncertainty metrics: T stochastic answers of a network -> one number per image, larger = less certain.

Every metric maps probabilities (T, B, C) to (B,). 0·log 0 = 0, variances are population variances (1/T).
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import torch
from torch import Tensor
from torch.special import entr


def predictive_variance(draws: Tensor) -> Tensor:
    """PV = Σ_c Var_t p_tc."""
    return draws.var(0, correction=0).sum(-1)


def entropy_variance(draws: Tensor) -> Tensor:
    """EV = Var_t H_t, H_t = −Σ_c p_tc log p_tc."""
    return entr(draws).sum(-1).var(0, correction=0)


def predictive_entropy(draws: Tensor) -> Tensor:
    """PE = −Σ_c μ_c log μ_c, μ = mean_t p_t."""
    return entr(draws.mean(0)).sum(-1)


def mutual_information(draws: Tensor) -> Tensor:
    """MI = PE − mean_t H_t: the disagreement of the draws."""
    return predictive_entropy(draws) - entr(draws).sum(-1).mean(0)


def predictive_ratio(draws: Tensor) -> Tensor:
    """PR = 1 − t_mode/T, the share of draws that vote against the most frequent class. For analysis only."""
    votes = draws.argmax(-1)  # (T, B)
    counts = torch.zeros(votes.shape[1], draws.shape[-1], dtype=draws.dtype, device=draws.device)
    counts.scatter_add_(1, votes.T, torch.ones_like(votes.T, dtype=draws.dtype))
    return 1.0 - counts.amax(1) / draws.shape[0]


def unconfidence(probabilities: Tensor) -> Tensor:
    """1 − max_c p_c of one clean answer (B, C). It needs no draws, so it is the reference that draws must beat."""
    return 1.0 - probabilities.amax(-1)


def witnessed_entropy(answer: Tensor, witness: Tensor) -> Tensor:
    """−Σ_c μ_c log μ_c, μ = the mean of a clean answer (B, C) and of the witness's: large where they differ, too."""
    return predictive_entropy(torch.stack([answer, witness]))


def rank(uncertainty: Tensor) -> Tensor:
    """R_i = 1 … B by ascending uncertainty: 1 is the most certain image. Ties keep their order in the batch."""
    order = uncertainty.argsort(stable=True)
    ranks = torch.empty_like(order)
    ranks[order] = torch.arange(1, len(order) + 1, device=order.device)
    return ranks


METRICS: dict[str, Callable[[Tensor], Tensor]] = {
    "pv": predictive_variance,
    "ev": entropy_variance,
    "pe": predictive_entropy,
    "mi": mutual_information,
    "pr": predictive_ratio,
}
UNDRAWN = ("confidence", "witness")  # uncertainties that need no draws
BEST_FIRST = ("witness", "pe", "confidence")


def best(names: Collection[str]) -> str:
    """Of these uncertainties the one that finds wrong answers best (docs/certainty.md)."""
    return next(name for name in BEST_FIRST if name in names)
