"""A teacher whose weights are the exponential moving average of its student's weights."""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import nn

from certus.core.schedules import Clock
from certus.core.step import Step
from certus.networks.references import refer
from certus.networks.roles import role, set_role


class EMA(nn.Module):
    """θ' ← αθ' + (1−α)θ after every step, α = min(s/(s + begin), decay) at step s = 1, 2, …

    With a `horizon` the average follows the length of the run instead: it looks back over this share of the steps so
    far, and over less and less of them in the last third, α = H/(H+1) with H = horizon · s · min(1, 3(1 − s/steps)).

    Float buffers (batch-norm statistics) are averaged too; integer buffers are copied.
    """

    student: nn.Module

    def __init__(self, student: nn.Module, decay: float = 0.99, horizon: float = 0.0, begin: float = 1.0) -> None:
        super().__init__()
        self.net = deepcopy(student).eval().requires_grad_(False)
        set_role(self.net, role(student).replace("student", "teacher"))
        self.decay, self.horizon, self.begin = decay, horizon, begin
        refer(self, student=student)

    @torch.no_grad()
    def follow(self, step: Step) -> None:
        alpha = self.alpha(step.clock)
        averages = [*self.net.parameters(), *self.net.buffers()]
        values = [*self.student.parameters(), *self.student.buffers()]
        floats = [(a, v) for a, v in zip(averages, values, strict=True) if a.is_floating_point()]
        torch._foreach_lerp_([a for a, _ in floats], [v for _, v in floats], 1.0 - alpha)
        for a, v in zip(averages, values, strict=True):
            if not a.is_floating_point():
                a.copy_(v)

    def alpha(self, clock: Clock) -> float:
        done = clock.step + 1
        longest = 1.0 - self.begin / (done + self.begin)
        if not self.horizon:
            return min(longest, self.decay)
        back = self.horizon * done * min(1.0, 3.0 * (1.0 - done / clock.steps))
        return min(longest, back / (back + 1.0))

    def __repr__(self) -> str:
        how = f"over the last {100 * self.horizon:g} % of the steps" if self.horizon else f"{self.decay:g}"
        return f"{role(self.net)} = EMA({role(self.student)}, {how})"
