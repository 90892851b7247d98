"""Reads: a student's logits (B, C), with gradient, under some perturbation."""

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
    """The student's answer to one view."""

    student: nn.Module
    view: str
    kind: str = "weak"

    def __call__(self, step: Step) -> Tensor:
        return step.learn(self.student, self.view, self.kind)

    def __repr__(self) -> str:
        return f"{role(self.student)}({self.view if self.kind == 'weak' else f'{self.kind} {self.view}'})"


@dataclass(frozen=True, eq=False)
class Adversarial:
    """The student's answer to a view that is moved by ε in the direction that changes its answer most (VAT).

    All these passes have the dropout of the view, and none changes batch-norm statistics.
    """

    student: nn.Module
    view: str
    epsilon: float = 1.0
    xi: float = 1e-2
    iterations: int = 1

    def __call__(self, step: Step) -> Tensor:
        return step.probe(self.student, self.perturbed(step), self.view)

    def perturbed(self, step: Step) -> Tensor:
        """x + ε d (B, …), a constant."""
        x, clean = step.view(self.view), step.learn(self.student, self.view).detach()
        one = clean.new_ones(len(clean))

        def divergence(r: Tensor) -> Tensor:
            return kl(step.probe(self.student, x + r, self.view), clean, one)

        start = torch.randn(x.shape, generator=step.generator(f"direction {self.view}"), device=x.device)
        return x + self.epsilon * worst_direction(divergence, start, self.xi, self.iterations)

    def __repr__(self) -> str:
        return f"{role(self.student)}({self.view} + {self.epsilon:g}·worst direction)"


SingleViewRead = See | Adversarial  # these have a `view`
