"""How a student looks at the batch: its logits (B, C), with gradient, under some perturbation."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from certus.core.losses import kl
from certus.core.step import Step
from certus.networks.roles import role
from certus.views.adversarial import worst_direction


@dataclass(frozen=True, eq=False)
class See:
    """The student looks at one view."""

    student: nn.Module
    view: str
    kind: str = "weak"

    def __call__(self, step: Step) -> Tensor:
        return step.learn(self.student, self.view, self.kind)

    def __repr__(self) -> str:
        return f"{role(self.student)}({self.view if self.kind == 'weak' else f'{self.kind} {self.view}'})"


@dataclass(frozen=True, eq=False)
class Adversarial:
    """The student looks at a view that is pushed by ε in the direction that changes its own answer most (VAT).

    The inner passes and the pushed one have the view's own dropout and leave no trace in batch-norm statistics.
    """

    student: nn.Module
    view: str
    epsilon: float = 1.0
    xi: float = 1e-2
    iterations: int = 1

    def __call__(self, step: Step) -> Tensor:
        return step.probe(self.student, self.pushed(step), self.view)

    def pushed(self, step: Step) -> Tensor:
        """x + ε d (B, …), a constant."""
        x, clean = step.view(self.view), step.learn(self.student, self.view).detach()
        one = clean.new_ones(len(clean))

        def divergence(r: Tensor) -> Tensor:
            return kl(step.probe(self.student, x + r, self.view), clean, one)

        start = torch.randn(x.shape, generator=step.generator(f"direction {self.view}"), device=x.device)
        return x + self.epsilon * worst_direction(divergence, start, self.xi, self.iterations)

    def __repr__(self) -> str:
        return f"{role(self.student)}({self.view} + {self.epsilon:g}·worst direction)"


Looking = See | Adversarial  # a read of one view, which has a name
