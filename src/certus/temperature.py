"""Temperature CCL: how softly an uncertain target is taught (refinements, pure Target -> Target)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from certus.schedules import Heat, Schedule
from certus.step import Step
from certus.target import Target

IMPOSSIBLE = -1e4  # a logit whose probability is exactly 0, finite so that no distance meets inf − inf


def temperatures(rank: Tensor, v_max: float) -> Tensor:
    """V_i = (R_i/|B|)² V_max + 1."""
    return (rank / len(rank)).square() * v_max + 1.0


@dataclass(frozen=True)
class Temper:
    """The less certain a target, the higher its temperature and the smaller its gradient."""

    v_max: Schedule = Heat()  # noqa: RUF009 (frozen)

    def __call__(self, target: Target, step: Step) -> Target:
        v = temperatures(target.rank, self.v_max(step.clock))
        return replace(target, temperature=target.temperature * v)

    def __repr__(self) -> str:
        return f"V = 1 + (R/|B|)²·{self.v_max}"


@dataclass(frozen=True)
class Harden:
    """All belief to the most likely class: a pseudo-label."""

    def __call__(self, target: Target, step: Step) -> Target:  # noqa: ARG002 (a refinement is given the step)
        logits = torch.full_like(target.logits, IMPOSSIBLE)
        return replace(target, logits=logits.scatter(1, target.logits.argmax(1, keepdim=True), 0.0))

    def __repr__(self) -> str:
        return "hard label"
