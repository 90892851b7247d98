"""Certainty over visits: the teacher changes slowly, so an image's earlier draws are still informative."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from certus.certainty.streaming import Summary, mix
from certus.core.step import Step
from certus.core.target import Lazy, Target
from certus.teachers.sources import MonteCarlo


class Visits(nn.Module):
    """Monte-Carlo certainty mixed with a memory of each image's moments.

    At an image's v-th visit the memory and the fresh draws are mixed; the fresh ones weigh max(1/v, share). The mixture
    gives the rank and is stored. An image that is twice in a batch stores its last mixture.
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
        return Target.plain(logits, Lazy(lambda: getattr(self.mixed(step), self.source.metric)))

    def mixed(self, step: Step) -> Summary:
        """The mixed moments of the batch's images, fresh draws included."""

        def make() -> Summary:
            fresh = self.source.moments(step).summary()
            index = step.batch.index
            share = (1 / (self.visits[index] + 1)).clamp(min=self.share)
            return mix(Summary(self.mean[index], *self.moments[index].unbind(1)), fresh, share)

        return step.once(("visits", id(self)), make)

    @torch.no_grad()
    def follow(self, step: Step) -> None:
        if not step.done(("visits", id(self))):
            return  # no rank was used, so there were no draws
        now, index = self.mixed(step), step.batch.index
        self.mean[index] = now.mean
        self.moments[index] = torch.stack([now.variance, now.entropy, now.entropy_variance], 1)
        self.visits[index.unique()] += 1

    def __repr__(self) -> str:
        return f"{self.source} and of earlier visits (the fresh ones weigh at least {self.share:g})"
