"""Refinements, pure functions Target -> Target: which targets the student learns from, and at which temperature.

Filtering CCL is `TopK` and `Probabilistic`, Temperature CCL is `Temper`; FixMatch is `Threshold` and `Harden`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from certus.core.schedules import Drop, Heat, Keep, Schedule
from certus.core.step import Step
from certus.core.target import Target

IMPOSSIBLE = -1e4  # a logit whose probability is exactly 0; finite, so that no distance computes inf − inf


def hard_keep(rank: Tensor, k: float) -> Tensor:
    """M_h: keep R_i ≤ k."""
    return rank <= k


def drop_probability(rank: Tensor, p_max: float) -> Tensor:
    """m_p = P_max (R_i − 1)/(|B| − 1): 0 for the most certain image, P_max for the least certain one."""
    return p_max * (rank - 1) / max(len(rank) - 1, 1)


@dataclass(frozen=True)
class TopK:
    """Keep the k most certain targets."""

    k: Schedule = Keep()  # noqa: RUF009 (frozen)

    def __call__(self, target: Target, step: Step) -> Target:
        k, batch = self.k(step.clock), len(target.weight)
        if k >= batch or k < 1:  # keeps all or none, so no ranks need to be measured
            return target.kept(torch.full_like(target.weight, k >= 1))
        return target.kept(hard_keep(target.rank, k))

    def __repr__(self) -> str:
        return f"keep R ≤ {self.k}"


@dataclass(frozen=True)
class Probabilistic:
    """Drop each target with a probability that grows with its rank."""

    p_max: Schedule = Drop()  # noqa: RUF009 (frozen)
    stream: str = "drop"  # name of its random numbers; each student has its own

    def __call__(self, target: Target, step: Step) -> Target:
        p_max = self.p_max(step.clock)
        if p_max == 0:
            return target
        dropped = drop_probability(target.rank, p_max)
        drawn = torch.rand(len(dropped), generator=step.generator(self.stream), device=dropped.device)
        return target.kept(drawn >= dropped)

    def __repr__(self) -> str:
        return f"drop with probability ({self.p_max})(R−1)/(|B|−1)"


@dataclass(frozen=True)
class Threshold:
    """Keep the targets whose most likely class has at least this probability."""

    confidence: float = 0.95

    def __call__(self, target: Target, step: Step) -> Target:  # noqa: ARG002 (a refinement is given the step)
        return target.kept(target.logits.softmax(1).amax(1) >= self.confidence)

    def __repr__(self) -> str:
        return f"keep max p ≥ {self.confidence:g}"


@dataclass(frozen=True)
class Unlabelled:
    """Keep the targets of unlabelled images, each with a larger weight, so that the mean is over them alone."""

    def __call__(self, target: Target, step: Step) -> Target:
        mask = (step.batch.labels < 0).to(target.weight.dtype)
        return target.kept(mask * len(mask) / mask.sum().clamp(min=1))

    def __repr__(self) -> str:
        return "keep unlabelled images"


def temperatures(rank: Tensor, v_max: float) -> Tensor:
    """V_i = (R_i/|B|)² V_max + 1."""
    return (rank / len(rank)).square() * v_max + 1.0


@dataclass(frozen=True)
class Temper:
    """Give less certain targets a higher temperature, and so a smaller gradient."""

    v_max: Schedule = Heat()  # noqa: RUF009 (frozen)

    def __call__(self, target: Target, step: Step) -> Target:
        v = temperatures(target.rank, self.v_max(step.clock))
        return replace(target, temperature=target.temperature * v)

    def __repr__(self) -> str:
        return f"V = 1 + (R/|B|)²·{self.v_max}"


@dataclass(frozen=True)
class Sharpen:
    """Make targets more decided: softmax(z/T) with T < 1."""

    temperature: float

    def __call__(self, target: Target, step: Step) -> Target:  # noqa: ARG002 (a refinement is given the step)
        return replace(target, logits=target.logits / self.temperature)

    def __repr__(self) -> str:
        return f"sharpen by T = {self.temperature:g}"


@dataclass(frozen=True)
class Harden:
    """Give the most likely class probability 1: a pseudo-label."""

    def __call__(self, target: Target, step: Step) -> Target:  # noqa: ARG002 (a refinement is given the step)
        logits = torch.full_like(target.logits, IMPOSSIBLE)
        return replace(target, logits=logits.scatter(1, target.logits.argmax(1, keepdim=True), 0.0))

    def __repr__(self) -> str:
        return "hard label"
