"""fastSWA: an answer from the plain mean of a student's weights along the end of its training."""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from certus.core.build_context import BuildContext
from certus.core.step import Step
from certus.networks.references import refer
from certus.networks.roles import call, role

PASSES = 10_000  # images from which the statistics of an average are taken


class Average(nn.Module):
    """w̄ = mean of the student's weights at e = start, start + every, start + 2·every, …

    Batch-norm statistics belong to weights and cannot be averaged: after each renewal they are taken anew from
    augmented training images. Before the first average it is the student itself, renewed after every pass.
    """

    student: nn.Module
    context: BuildContext

    def __init__(self, student: nn.Module, context: BuildContext, start: float, every: float) -> None:
        super().__init__()
        self.net = deepcopy(student).eval().requires_grad_(False)
        call(self.net, role(student).replace("student", "average"))
        self.start, self.every = start, every
        self.register_buffer("count", torch.tensor(0))
        self.count: Tensor
        refer(self, student=student, context=context)

    @torch.no_grad()
    def follow(self, step: Step) -> None:
        if step.clock.epoch < self.start and not (step.clock.ends_pass or step.clock.ends_run):
            return
        count = int(self.count)
        if step.clock.epoch >= self.start + count * self.every:
            for mine, theirs in zip(self.net.parameters(), self.student.parameters(), strict=True):
                mine.lerp_(theirs, 1.0 / (count + 1))
            self.count += 1
            self.take_statistics(step)
        elif not count and (step.clock.ends_pass or step.clock.ends_run):
            self.net.load_state_dict(self.student.state_dict())

    def take_statistics(self, step: Step) -> None:
        """Plain means over the batches of one pass, dropout on as in training."""
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
        order = torch.randperm(len(context.pool), generator=shuffle, device=step.device)[:PASSES].cpu()
        step.seed_dropout("statistics", self.net)
        self.net.train()
        for places in context.pool[order].split(len(step.batch)):
            if len(places) > 1 or len(context.pool) == 1:
                images = context.normalised(context.images[places.to(context.images.device)])
                self.net(context.weak(images, random))
        self.net.eval()
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum

    def __repr__(self) -> str:
        return f"{role(self.net)} = mean of {role(self.student)} at e = {self.start:g}, +{self.every:g}, …"
