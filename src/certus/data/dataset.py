"""A data set in memory: images as they are stored, labels, classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Part:
    """Images with their labels."""

    images: Tensor  # (N, C, H, W) uint8, or (N, D) float32
    labels: Tensor  # (N,) int64

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, eq=False)
class Dataset:
    name: str
    classes: tuple[str, ...]
    train: Part
    test: Part
    preset: Mapping[str, Any] = field(default_factory=dict)  # settings that suit it, chosen on validation labels

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one input: (C, H, W), or (D,)."""
        return tuple(self.train.images.shape[1:])

    @cached_property
    def scale(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of each channel (each feature of a vector) over the training images."""
        images = self.train.images
        rest = [d for d in range(images.dim()) if d != 1]
        x = images.float()
        std, mean = torch.std_mean(x, dim=rest, keepdim=True)
        return mean, std.clamp(min=1e-6)

    def normalised(self, images: Tensor) -> Tensor:
        mean, std = (s.to(images.device) for s in self.scale)
        return (images.float() - mean) / std

    @cached_property
    def fingerprint(self) -> str:
        """Tells whether a run is resumed on the data that it was started on."""
        digest = blake2b(digest_size=8)
        for part in (self.train, self.test):
            digest.update(part.images.contiguous().numpy().tobytes())
            digest.update(part.labels.numpy().tobytes())
        return digest.hexdigest()
