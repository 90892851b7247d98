"""A data set in memory: images as they are stored, labels and classes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from math import sqrt

import torch
from torch import Tensor

SLICE = 1 << 24  # bytes that are processed at a time, so that a large data set is never copied as a whole


@dataclass(frozen=True, eq=False)
class Part:
    """Images with their labels; −1 for an image without a label."""

    images: Tensor  # (N, C, H, W) uint8, or (N, D) float32
    labels: Tensor  # (N,) int64

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, eq=False)
class Dataset:
    """Training and test images of named classes."""

    name: str
    classes: tuple[str, ...]
    train: Part
    test: Part  # may be empty
    validation: Part | None = None  # if the data set has its own validation images

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input: (C, H, W), or (D,)."""
        return tuple(self.train.images.shape[1:])

    @cached_property
    def scale(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of each channel (each feature of a vector) over the training images."""
        images = self.train.images
        if images.dtype == torch.uint8:
            return scale_of_bytes(images)
        rest = [d for d in range(images.dim()) if d != 1]
        x = images.float()
        std, mean = torch.std_mean(x, dim=rest, keepdim=True)
        return mean, torch.where(std > 1e-6 * mean.abs(), std, 1.0)  # what never varies is not blown up

    def normalised(self, images: Tensor) -> Tensor:
        mean, std = (s.to(images.device) for s in self.scale)
        return (images.float() - mean) / std

    @cached_property
    def fingerprint(self) -> str:
        """A digest of the data: shows whether a run is resumed on the data that it was started on."""
        digest = blake2b(digest_size=8)
        for part in (self.train, self.test):
            for piece in (*slices(part.images), part.labels):
                digest.update(piece.contiguous().view(-1).numpy().data)
        return digest.hexdigest()

    @cached_property
    def pixels(self) -> str:
        """A digest of the training images alone, whatever their labels."""
        digest = blake2b(digest_size=8)
        for piece in slices(self.train.images):
            digest.update(piece.contiguous().view(-1).numpy().data)
        return digest.hexdigest()


def brightest(images: Tensor) -> float:
    """The value of white: 255 of bytes, else the largest there is, and at least 1."""
    return 255.0 if images.dtype == torch.uint8 else max(1.0, float(images.max()))


def slices(images: Tensor) -> tuple[Tensor, ...]:
    return images.split(max(1, SLICE // max(1, images[:1].nbytes)))


def scale_of_bytes(images: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and deviation from each channel's histogram: integers up to the last division, and no copy of the images."""
    channels = images.shape[1]
    counts = torch.zeros(channels, 256, dtype=torch.int64)
    for part in slices(images):
        for c in range(channels):
            counts[c] += part[:, c].flatten().bincount(minlength=256)
    level = torch.arange(256)
    n = images[:, 0].numel()
    means, deviations = [], []
    for total, squares in zip((counts * level).sum(1).tolist(), (counts * level**2).sum(1).tolist(), strict=True):
        means.append(total / n)
        deviations.append(max(1e-6, sqrt((n * squares - total**2) / (n * max(1, n - 1)))))
    shape = (1, channels, *[1] * (images.dim() - 2))
    mean, std = torch.tensor([means, deviations], dtype=torch.float32).view(2, *shape)
    return mean, std
