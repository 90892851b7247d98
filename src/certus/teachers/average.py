"""fastSWA: a network whose weights are the plain mean of a student's weights over the end of training."""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from certus.core.build_context import BuildContext
from certus.core.step import Step
from certus.networks.references import refer
from certus.networks.roles import role, set_role

STATISTICS_IMAGES = 10_000  # training images from which batch-norm statistics are computed


class Average(nn.Module):
    """w̄ = mean of the student's weights at e = start, start + every, start + 2·every, …

    Averaged batch-norm statistics would not fit the averaged weights: at the end of each pass, and of the run, they are
    computed anew from augmented training images. Before the first update it is a copy of the student, renewed as often.
    """

    student: nn.Module
    context: BuildContext

    def __init__(self, student: nn.Module, context: BuildContext, start: float, every: float) -> None:
        super().__init__()
        self.net = deepcopy(student).eval().requires_grad_(False)
        set_role(self.net, role(student).replace("student", "average"))
        self.start, self.every = start, every
        self.register_buffer("count", torch.tensor(0))
        self.count: Tensor
        refer(self, student=student, context=context)

    @torch.no_grad()
    def follow(self, step: Step) -> None:
        count = int(self.count)
        if step.clock.epoch >= self.start + count * self.every:
            for mean, weight in zip(self.net.parameters(), self.student.parameters(), strict=True):
                mean.lerp_(weight, 1.0 / (count + 1))
            self.count += 1
        if step.clock.ends_pass or step.clock.ends_run:
            if self.count:
                self.compute_statistics(step)
            else:
                self.net.load_state_dict(self.student.state_dict())

    def compute_statistics(self, step: Step) -> None:
        """Plain means over batches of training images, with dropout as in training."""
        norms = [m for m in self.net.modules() if isinstance(m, _BatchNorm)]
        if not norms:
            return
        context = self.context
        momenta = [norm.momentum for norm in norms]
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # the plain mean over batches
        random = step.generator(f"statistics of {role(self.net)}")
        shuffle = step.generator("order of statistics")
        order = torch.randperm(len(context.pool), generator=shuffle, device=step.device)[:STATISTICS_IMAGES].cpu()
        step.seed_dropout("statistics", self.net)
        self.net.train()
        for indices in context.pool[order].split(len(step.batch)):
            if len(indices) > 1 or len(context.pool) == 1:
                step.through(self.net, context.weak_view(indices, random))
        self.net.eval()
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum

    def __repr__(self) -> str:
        return f"{role(self.net)} = mean of {role(self.student)} at e = {self.start:g}, +{self.every:g}, …"
