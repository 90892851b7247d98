"""What a method is made from: networks, and all that it may know of the training images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from certus.views import Augmentation, Chain


class Networks(Protocol):
    def __call__(self, i: int, scale: float = 1.0) -> nn.Module:
        """The i-th student, initialised on its own, `scale` times as wide as the run's network."""
        ...


@dataclass(frozen=True, eq=False)
class BuildContext:
    network: Networks
    classes: int
    images: Tensor  # (N, …) the training images, as stored
    labels: Tensor  # (N,) −1 where the run may not look
    pool: Tensor  # (M,) places of the images that it trains on, labelled and unlabelled
    normalised: Callable[[Tensor], Tensor]
    weak: Augmentation

    @classmethod
    def bare(cls, network: Networks, classes: int) -> BuildContext:
        """Without any image: enough to show a recipe, or to load the networks that answer."""
        nothing = torch.empty(0, dtype=torch.int64)
        return cls(network, classes, nothing, nothing, nothing, lambda images: images, Chain())
