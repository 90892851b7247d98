"""A teacher that averages the student's earlier answers to each image."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from certus.core.step import Step
from certus.core.target import Target
from certus.networks.references import refer
from certus.networks.roles import role


class Ensemble(nn.Module):
    """Z_i ← αZ_i + (1−α)z_i at each visit of image i. Its target is Z_i/(1−α^t) after t visits, with weight 0 at t = 0.

    z_i is the student's answer, with dropout and view, that the step computed for learning. An image that is twice in
    a batch counts once, with the mean of its answers.
    """

    student: nn.Module

    def __init__(self, student: nn.Module, view: str, images: int, classes: int, alpha: float = 0.6) -> None:
        super().__init__()
        self.view, self.alpha = view, alpha
        self.register_buffer("sums", torch.zeros(images, classes))
        self.register_buffer("visits", torch.zeros(images))
        self.sums: Tensor
        self.visits: Tensor
        refer(self, student=student)

    def forward(self, step: Step) -> Target:
        visits = self.visits[step.batch.index]
        visited = (visits > 0).float()
        mean = self.sums[step.batch.index] / (1 - self.alpha**visits).clamp(min=1e-6)[:, None]
        return Target.plain(mean.clamp(min=1e-8).log()).kept(visited)

    @torch.no_grad()
    def follow(self, step: Step) -> None:
        answers = step.learn(self.student, self.view).softmax(1)
        images, row = step.batch.index.unique(return_inverse=True)
        count = torch.zeros(len(images), device=answers.device).index_add_(0, row, torch.ones_like(answers[:, 0]))
        total = torch.zeros(len(images), answers.shape[1], device=answers.device).index_add_(0, row, answers)
        mean = total / count[:, None]
        self.sums[images] = self.alpha * self.sums[images] + (1 - self.alpha) * mean
        self.visits[images] += 1

    def __repr__(self) -> str:
        return f"ensemble of {role(self.student)}({self.view}) over visits, α = {self.alpha:g}"
