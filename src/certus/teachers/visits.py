"""Certainty over visits: the teacher moves slowly, so what its draws said of an image before counts the next time."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from certus.certainty.streaming import Summary, mix
from certus.core.step import Step
from certus.core.target import Later, Target
from certus.teachers.sources import MonteCarlo


class Visits(nn.Module):
    """Monte-Carlo certainty mixed with a memory of each image's moments.

    At its v-th visit an image's summary is mixed from the memory and the fresh draws, which weigh max(1/v, share); the
    mixture is what ranks it now, and what is remembered. An image that stands twice in a batch remembers its last one.
    """

    def __init__(self, source: MonteCarlo, images: int, classes: int, share: float = 0.3) -> None:
        super().__init__()
        self.source, self.share = source, share
        self.register_buffer("visits", torch.zeros(images))
        self.register_buffer("mean", torch.zeros(images, classes))
        self.register_buffer("moments", torch.zeros(images, 3))  # variance, entropy, variance of the entropy
        self.visits: Tensor
        self.mean: Tensor
        self.moments: Tensor

    @property
    def net(self) -> nn.Module:
        return self.source.net

    def forward(self, step: Step) -> Target:
        logits = step.answer(self.source.net, self.source.view)
        return Target.plain(logits, Later(lambda: getattr(self.mixed(step), self.source.metric)))

    def mixed(self, step: Step) -> Summary:
        """Of the batch's images, the fresh draws included."""

        def make() -> Summary:
            fresh = self.source.moments(step).summary()
            index = step.batch.index
            share = (1 / (self.visits[index] + 1)).clamp(min=self.share)
            return mix(Summary(self.mean[index], *self.moments[index].unbind(1)), fresh, share)

        return step.once(("visits", id(self)), make)

    @torch.no_grad()
    def follow(self, step: Step) -> None:
        if not step.done(("visits", id(self))):
            return  # nobody asked for a rank
        now, index = self.mixed(step), step.batch.index
        self.mean[index] = now.mean
        self.moments[index] = torch.stack([now.variance, now.entropy, now.entropy_variance], 1)
        self.visits[index.unique()] += 1

    def __repr__(self) -> str:
        return f"{self.source} and of earlier visits (the fresh ones weigh at least {self.share:g})"
