"""A strong view in a few whole-batch operations: one affine map, one change of colour, one hole.

It is quicker than RandAugment, whose operations are Pillow's to the bit. Images are normalised: mean 0 and deviation 1
per channel.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True)
class Distort:
    """Rotate, scale, stretch, shear, shift and mirror; change contrast, brightness and colour; cut a hole.

    `strength` scales every range; 0 leaves the hole and the mirror. Each image has its own random numbers.
    """

    flip: bool = False
    strength: float = 0.6
    hole: float = 0.5  # largest side of the hole, in shares of the shorter side

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        def uniform(*shape: int) -> Tensor:
            """In −1 … 1."""
            return torch.rand(*shape, generator=generator, device=images.device) * 2 - 1

        n, channels = images.shape[:2]
        s = self.strength
        turned = warp(
            images,
            angle=0.35 * s * uniform(n),
            size=0.25 * s * uniform(n),
            stretch=0.15 * s * uniform(n),
            shear=0.25 * s * uniform(n),
            shift=0.25 * s * uniform(n, 2),
            mirror=uniform(n).sign() if self.flip else torch.ones(n, device=images.device),
        )
        coloured = recolour(
            turned,
            contrast=0.7 * s * uniform(n),
            brightness=0.6 * s * uniform(n),
            saturation=0.8 * s * uniform(n) - 0.1 * s,
            cast=0.25 * s * uniform(n, channels),
        )
        return cut(coloured, centre=(uniform(n, 2) + 1) / 2, sides=self.hole * (3 + uniform(n, 2)) / 4)

    def __repr__(self) -> str:
        return f"distort by {self.strength:g}"


def warp(
    images: Tensor, angle: Tensor, size: Tensor, stretch: Tensor, shear: Tensor, shift: Tensor, mirror: Tensor
) -> Tensor:
    """Read each image through x ↦ A x + t by bilinear interpolation; the border is reflected.

    A = diag(e^(size+stretch), e^(size−stretch)) · (rotation by `angle` with `shear`), its first column times `mirror`.
    """
    wide, high = (size + stretch).exp(), (size - stretch).exp()
    rows = [
        torch.stack([mirror * wide * angle.cos(), wide * (shear - angle.sin()), shift[:, 0]], 1),
        torch.stack([mirror * high * angle.sin(), high * angle.cos(), shift[:, 1]], 1),
    ]
    grid = F.affine_grid(torch.stack(rows, 1), list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, padding_mode="reflection", align_corners=False)


def recolour(images: Tensor, contrast: Tensor, brightness: Tensor, saturation: Tensor, cast: Tensor) -> Tensor:
    """(x − m)·e^contrast + m + brightness, m the image's mean; of a colour image also saturation and a cast."""

    def per_image(x: Tensor) -> Tensor:
        return x.view(len(x), -1, 1, 1)

    mean = images.mean((1, 2, 3), keepdim=True)
    x = (images - mean) * per_image(contrast.exp()) + mean + per_image(brightness)
    if images.shape[1] == 1:
        return x
    grey = x.mean(1, keepdim=True)
    return grey + (x - grey) * per_image(saturation.exp()) + per_image(cast)


def cut(images: Tensor, centre: Tensor, sides: Tensor) -> Tensor:
    """Set a rectangle to 0, the mean colour: centre (B, 2) and sides (B, 2) in shares of height and width."""
    h, w = images.shape[2:]
    y = (torch.arange(h, device=images.device) + 0.5) / h
    x = (torch.arange(w, device=images.device) + 0.5) / w
    inside_y = (y - centre[:, :1]).abs() < sides[:, :1] / 2  # (B, H)
    inside_x = (x - centre[:, 1:]).abs() < sides[:, 1:] / 2  # (B, W)
    return images.masked_fill((inside_y[:, :, None] & inside_x[:, None, :])[:, None], 0.0)
