"""Several students that teach each other: who is paired with whom in a step."""

from __future__ import annotations

import torch
from torch import nn

from certus.core.step import Step
from certus.randomness import generator


def partner(step: Step, students: tuple[nn.Module, ...], i: int) -> int:
    """From whom student i learns in this step: a random circle through all, so that of two each has the other."""
    order: list[int] = step.once(
        ("partners", len(students)),
        lambda: torch.randperm(len(students), generator=generator(step.seed, step.clock.step, "partners")).tolist(),
    )
    return order[order.index(i) - 1]
