"""Augmentations of whole batches, random per image. Each is a pure function (images, generator) -> images."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from certus.errors import UsageError

Augmentation = Callable[[Tensor, torch.Generator], Tensor]
Views = Mapping[str, Augmentation]  # kind ("weak", …) -> augmentation


@dataclass(frozen=True)
class Translate:
    """Shift each image by up to ±pixels in both directions; the border is filled by reflection."""

    pixels: int

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        b, _, h, w = images.shape
        if self.pixels >= min(h, w):
            raise UsageError(
                f"`translate` must be less than the shorter side of the images, {min(h, w)} pixels, but is "
                f"{self.pixels}."
            )
        shift = torch.randint(-self.pixels, self.pixels + 1, (2, b, 1), generator=generator, device=images.device)
        rows = reflect(torch.arange(h, device=images.device) + shift[0], h)  # (B, H)
        cols = reflect(torch.arange(w, device=images.device) + shift[1], w)  # (B, W)
        image = torch.arange(b, device=images.device)[:, None, None]
        shifted = images.permute(0, 2, 3, 1)[image, rows[:, :, None], cols[:, None, :]]  # (B, H, W, C)
        return shifted.permute(0, 3, 1, 2)


def reflect(i: Tensor, n: int) -> Tensor:
    """The index in 0 … n−1 after reflection at either border; the border pixel is not repeated."""
    return (n - 1) - ((n - 1) - i.abs()).abs()


@dataclass(frozen=True)
class Flip:
    """Mirror each image left to right with probability ½."""

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        flip = torch.rand(len(images), generator=generator, device=images.device) < 0.5
        return torch.where(flip[:, None, None, None], images.flip(3), images)


@dataclass(frozen=True)
class Noise:
    """Add Gaussian noise of this standard deviation (of normalised images, which have deviation 1)."""

    std: float

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        noise = torch.randn(images.shape, generator=generator, device=images.device, dtype=images.dtype)
        return images + self.std * noise


@dataclass(frozen=True)
class Chain:
    """One augmentation after the other; without any, the images stay as they are."""

    parts: tuple[Augmentation, ...] = ()

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        for part in self.parts:
            images = part(images, generator)
        return images


def weak(translate: int = 0, flip: bool = False, noise: float = 0.0) -> Chain:
    """The weak view of a data set from its three settings."""
    parts: list[Augmentation] = []
    if translate:
        parts.append(Translate(translate))
    if flip:
        parts.append(Flip())
    if noise:
        parts.append(Noise(noise))
    return Chain(tuple(parts))
