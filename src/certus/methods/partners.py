"""Partners for methods whose students teach each other (dual student, co-training), drawn anew in every step."""

from __future__ import annotations

import torch
from torch import nn

from certus.core.step import Step
from certus.randomness import generator


def partner(step: Step, students: tuple[nn.Module, ...], i: int) -> int:
    """The number of the student that teaches student i in this step.

    All students form one random circle, in which each learns from the one before. Two students always teach each other.
    """
    order: list[int] = step.once(
        ("partners", len(students)),
        lambda: torch.randperm(len(students), generator=generator(step.seed, step.clock.step, "partners")).tolist(),
    )
    return order[order.index(i) - 1]
