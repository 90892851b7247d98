"""Uncertainty metrics from draws that arrive one by one, in memory that does not grow with T.

Welford's recurrences, x_1, x_2, … with mean m and sum of squared deviations S:

    δ = x_t − m,   m ← m + δ/t,   S ← S + δ (x_t − m),   Var = S/T

in double precision: when a network is very certain, its draws differ only in the last digits of p.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.special import entr


@dataclass(frozen=True, eq=False)
class Summary:
    """Moments of each image's draws: enough to compute PV, EV, PE and MI, and to be mixed with other moments."""

    mean: Tensor  # (B, C)  of p
    variance: Tensor  # (B,)  Σ_c Var_t p_tc
    entropy: Tensor  # (B,)  mean of H
    entropy_variance: Tensor  # (B,)  Var_t H_t

    @property
    def pv(self) -> Tensor:
        return self.variance

    @property
    def ev(self) -> Tensor:
        return self.entropy_variance

    @property
    def pe(self) -> Tensor:
        return entr(self.mean).sum(1)

    @property
    def mi(self) -> Tensor:
        return self.pe - self.entropy


def mix(old: Summary, new: Summary, share: Tensor) -> Summary:
    """The moments of a mixture: draws of the new summary with probability `share` (B,), of the old one otherwise."""

    def between(a: Tensor, b: Tensor) -> Tensor:
        w = share.view(-1, *[1] * (a.dim() - 1))
        return (1 - w) * a + w * b

    apart = share * (1 - share)  # for two means at distance Δ, E[(m − m̄)²] = s(1−s)Δ²
    return Summary(
        between(old.mean, new.mean),
        between(old.variance, new.variance) + apart * (old.mean - new.mean).square().sum(1),
        between(old.entropy, new.entropy),
        between(old.entropy_variance, new.entropy_variance) + apart * (old.entropy - new.entropy).square(),
    )


class Moments:
    """Running moments of drawn probabilities, and the metrics of `certus.certainty.metrics` computed from them."""

    def __init__(self, batch: int, classes: int, device: torch.device | str = "cpu") -> None:
        self.draws = 0
        self._dtype = torch.float32
        self._mean = torch.zeros(batch, classes, dtype=torch.float64, device=device)  # (B, C)  of p
        self._spread = torch.zeros(batch, dtype=torch.float64, device=device)  # (B,)  T Σ_c Var_t p_tc
        self._entropy = torch.zeros_like(self._spread)  # (B,)  mean of H
        self._entropy_spread = torch.zeros_like(self._spread)  # (B,)  T Var_t H_t
        self._votes = torch.zeros_like(self._mean)  # (B, C)  number of draws whose most likely class this is

    def add(self, p: Tensor) -> None:
        """Add one draw, probabilities (B, C)."""
        if p.shape != self._mean.shape:
            raise ValueError(f"A draw must have shape {tuple(self._mean.shape)}, but has shape {tuple(p.shape)}.")
        self.draws += 1
        self._dtype = p.dtype
        self._votes.scatter_add_(1, p.argmax(1, keepdim=True), torch.ones_like(self._votes[:, :1]))
        p = p.detach().double()
        delta = p - self._mean
        self._mean += delta / self.draws
        self._spread += (delta * (p - self._mean)).sum(1)
        entropy = entr(p).sum(1)
        delta = entropy - self._entropy
        self._entropy += delta / self.draws
        self._entropy_spread += delta * (entropy - self._entropy)

    def summary(self) -> Summary:
        return Summary(self.mean, self.pv, self._per_draw(self._entropy, 1), self.ev)

    @property
    def mean(self) -> Tensor:
        """μ = mean_t p_t, (B, C)."""
        return self._per_draw(self._mean, 1)

    @property
    def pv(self) -> Tensor:
        """Σ_c Var_t p_tc."""
        return self._per_draw(self._spread, self.draws)

    @property
    def ev(self) -> Tensor:
        """Var_t H_t."""
        return self._per_draw(self._entropy_spread, self.draws)

    @property
    def pe(self) -> Tensor:
        """−Σ_c μ_c log μ_c."""
        return self._per_draw(entr(self._mean).sum(1), 1)

    @property
    def mi(self) -> Tensor:
        """PE − mean_t H_t."""
        return self._per_draw(entr(self._mean).sum(1) - self._entropy, 1)

    @property
    def pr(self) -> Tensor:
        """1 − t_mode/T."""
        return self._per_draw(self.draws - self._votes.amax(1), self.draws)

    def _per_draw(self, total: Tensor, draws: int) -> Tensor:
        """Divided by `draws`, in the precision of the draws; refused before the first draw."""
        if not self.draws:
            raise ValueError("There is no draw yet: add one first.")
        return (total / draws).to(self._dtype)
