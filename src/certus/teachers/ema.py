"""A teacher whose weights are the exponential moving average of its student's weights."""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import nn

from certus.core.step import Step
from certus.networks.references import refer
from certus.networks.roles import role, set_role


class EMA(nn.Module):
    """θ' ← αθ' + (1−α)θ after every step, α = min(1 − 1/(s+1), decay) at step s = 1, 2, …

    Float buffers (batch-norm statistics) are averaged too; integer buffers are copied.
    """

    student: nn.Module

    def __init__(self, student: nn.Module, decay: float = 0.99) -> None:
        super().__init__()
        self.net = deepcopy(student).eval().requires_grad_(False)
        set_role(self.net, role(student).replace("student", "teacher"))
        self.decay = decay
        refer(self, student=student)

    @torch.no_grad()
    def follow(self, step: Step) -> None:
        alpha = min(1.0 - 1.0 / (step.clock.step + 2), self.decay)
        averages = [*self.net.parameters(), *self.net.buffers()]
        values = [*self.student.parameters(), *self.student.buffers()]
        floats = [(a, v) for a, v in zip(averages, values, strict=True) if a.is_floating_point()]
        torch._foreach_lerp_([a for a, _ in floats], [v for _, v in floats], 1.0 - alpha)
        for a, v in zip(averages, values, strict=True):
            if not a.is_floating_point():
                a.copy_(v)

    def __repr__(self) -> str:
        return f"{role(self.net)} = EMA({role(self.student)}, {self.decay:g})"
