"""What a method is built from: networks, and everything that it may know about the training images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from certus.core.schedules import EPOCHS
from certus.views import Augmentation, Chain


class Networks(Protocol):
    def __call__(self, i: int, scale: float = 1.0) -> nn.Module:
        """The i-th student, with its own initialisation, `scale` times as wide as the run's network."""
        ...


@dataclass(frozen=True, eq=False)
class BuildContext:
    """The networks and the training images of a run."""

    network: Networks
    classes: int
    images: Tensor  # (N, …) the training images, as stored
    labels: Tensor  # (N,) −1 where the label is hidden from the run
    pool: Tensor  # (M,) indices of the images that it trains on, labelled and unlabelled
    normalised: Callable[[Tensor], Tensor]
    weak: Augmentation
    smoothing: float = 0.0  # of the labels
    labelled_view: str = "weak"  # or strong
    epochs: int = EPOCHS  # of the run's clock

    def weak_view(self, indices: Tensor, generator: torch.Generator) -> Tensor:
        """These training images, normalised and under the weak augmentation."""
        return self.weak(self.normalised(self.images[indices.to(self.images.device)]), generator)

    @classmethod
    def bare(cls, network: Networks, classes: int) -> BuildContext:
        """Without images: enough to print a recipe, or to load the networks that answer."""
        nothing = torch.empty(0, dtype=torch.int64)
        return cls(network, classes, nothing, nothing, nothing, lambda images: images, Chain())
