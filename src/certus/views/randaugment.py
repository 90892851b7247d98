"""RandAugment, the strong view: a few random operations on each image, then Cutout.

`RandAugment(*data.scale)` is FixMatch's version: two operations per image, drawn with replacement. Each is applied with
probability ½, at a magnitude drawn uniformly from its range. The original version, with N = 2 and M = 9 of 10, is
`RandAugment(*data.scale, operations=2, magnitude=9 / 10, cutout=0, probability=1, pool=RANDAUGMENT)`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from certus.views import operations as ops


@dataclass(frozen=True)
class Operation:
    """An operation with its range: level 0 is the weakest magnitude, level 1 the strongest."""

    function: Callable[..., Tensor]
    weakest: float = 0.0
    strongest: float = 0.0
    both_ways: bool = False  # with a random sign around the weakest

    def magnitude(self, level: Tensor, sign: Tensor) -> Tensor:
        """weakest ± level (strongest − weakest)"""
        return self.weakest + (self.strongest - self.weakest) * (sign * level if self.both_ways else level)

    def __call__(self, images: Tensor, level: Tensor, sign: Tensor, fill: ops.Fill) -> Tensor:
        magnitude = self.magnitude(level, sign)
        if self.function in ops.GEOMETRIC:
            return self.function(images, magnitude, fill)
        return self.function(images, magnitude)


Pool = tuple[Operation, ...]

UNCHANGED = Operation(ops.identity)
COMMON: Pool = (
    UNCHANGED,
    Operation(ops.autocontrast),
    Operation(ops.equalize),
    Operation(ops.posterize, 8, 4),  # bits
    Operation(ops.solarize, 256, 0),  # threshold
    Operation(ops.rotate, 0, 30, both_ways=True),  # degrees
    Operation(ops.shear_x, 0, 0.3, both_ways=True),
    Operation(ops.shear_y, 0, 0.3, both_ways=True),
)
ENHANCERS = (ops.brightness, ops.color, ops.contrast, ops.sharpness)
FIXMATCH: Pool = (  # Table 12 of its paper
    *COMMON,
    *(Operation(enhance, 0.95, 0.05) for enhance in ENHANCERS),
    Operation(ops.translate_x, 0, 0.3, both_ways=True),
    Operation(ops.translate_y, 0, 0.3, both_ways=True),
)
RANDAUGMENT: Pool = (  # AutoAugment's ranges, each ordered from weak to strong
    *COMMON,
    Operation(ops.invert),
    *(Operation(enhance, 1, 1.9, both_ways=True) for enhance in ENHANCERS),
    Operation(ops.translate_x, 0, 0.45, both_ways=True),
    Operation(ops.translate_y, 0, 0.45, both_ways=True),
)


@dataclass(frozen=True, eq=False)
class Draw:
    """The random choices of each image of a batch for one operation."""

    which: Tensor  # (B,) index in the pool; len(pool): unchanged
    level: Tensor  # (B,) in 0 … 1
    sign: Tensor  # (B,) ±1


def apply(pool: Pool, images: Tensor, draw: Draw, fill: ops.Fill) -> Tensor:
    """Apply to each image (uint8) the operation that it drew; each operation runs once, on all its images."""
    order = draw.which.argsort()
    counts = draw.which.bincount(minlength=len(pool) + 1).tolist()
    images, level, sign = (x.index_select(0, order) for x in (images, draw.level, draw.sign))
    groups = zip((*pool, UNCHANGED), images.split(counts), level.split(counts), sign.split(counts), strict=True)
    changed = torch.cat([operation(x, u, s, fill) for operation, x, u, s in groups])
    return changed.index_select(0, order.argsort())


@dataclass(frozen=True)
class Cutout:
    """Fill a square at a random position of each image, clipped at the border."""

    size: float = 0.5  # side of the square as a fraction of the image's shorter side, at least one pixel; 0: none
    fill: ops.Fill = 0  # the mean of normalised images

    def __post_init__(self) -> None:
        if not 0 <= self.size <= 1:
            raise ValueError(f"The size of Cutout's square must be a fraction between 0 and 1, not {self.size}.")

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        if self.size == 0:
            return images
        b, _, h, w = images.shape
        row = torch.randint(h, (b,), generator=generator, device=images.device)
        column = torch.randint(w, (b,), generator=generator, device=images.device)
        return ops.cutout(images, row, column, max(1, round(self.size * min(h, w))), self.fill)


@dataclass(frozen=True, eq=False)
class RandAugment:
    """Turn normalised images into levels 0 … 255, apply random operations and Cutout, and normalise again.

    Pixels from outside the image and cut-out pixels have the data's mean colour, which is 0 (up to half a level) when
    normalised, as in FixMatch's own program.
    """

    mean: Tensor  # (1, C, 1, 1) of the data, on the scale 0 … 255
    std: Tensor  # (1, C, 1, 1) of the data, on the scale 0 … 255
    operations: int = 2  # on each image, one after the other
    magnitude: float | None = None  # one fixed level for all, such as 9 / 10; None: drawn uniformly from 0 … 1
    cutout: float = 0.5  # side of the square as a fraction of the image's; 0: none
    probability: float = 0.5  # of applying a drawn operation; ½ in FixMatch's own program, 1 in RandAugment's
    pool: Pool = FIXMATCH

    def __post_init__(self) -> None:
        if self.operations < 0:
            raise ValueError(f"The number of operations must not be negative, but is {self.operations}.")
        if self.magnitude is not None and not 0 <= self.magnitude <= 1:
            raise ValueError(f"The magnitude must be between 0 and 1 (M of 10 is M / 10), not {self.magnitude}.")
        if not 0 <= self.probability <= 1:
            raise ValueError(f"The probability must be between 0 and 1, not {self.probability}.")
        if not self.pool:
            raise ValueError("The pool has no operation to draw: give at least one.")
        Cutout(self.cutout)

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        if images.dim() != 4 or images.shape[1] != self.mean.shape[1]:
            raise ValueError(f"Images must be (B, {self.mean.shape[1]}, H, W), but are {tuple(images.shape)}.")
        mean, std = self.mean.to(images.device), self.std.to(images.device)
        fill = levels(mean)
        x = levels(torch.addcmul(mean, images, std))  # (B, C, H, W) uint8
        for draw in self.draws(len(images), generator):
            x = apply(self.pool, x, draw, fill)
        x = Cutout(self.cutout, fill)(x, generator)
        return (x - mean).div_(std).to(images.dtype)

    def draws(self, count: int, generator: torch.Generator) -> list[Draw]:
        """The random choices for this many images, one `Draw` per operation."""
        shape, device = (self.operations, count), generator.device
        which = torch.randint(len(self.pool), shape, generator=generator, device=device)
        applied = torch.rand(shape, generator=generator, device=device) < self.probability
        level = torch.rand(shape, generator=generator, device=device)
        if self.magnitude is not None:
            level = torch.full_like(level, self.magnitude)
        sign = 1.0 - 2.0 * torch.randint(2, shape, generator=generator, device=device)
        return [Draw(*draw) for draw in zip(torch.where(applied, which, len(self.pool)), level, sign, strict=True)]

    def __repr__(self) -> str:
        magnitude = "uniform" if self.magnitude is None else f"{self.magnitude:g}"
        return (
            f"RandAugment({self.operations} of {len(self.pool)} operations, probability {self.probability:g}, "
            f"magnitude {magnitude}, cutout {self.cutout:g})"
        )


def levels(images: Tensor) -> Tensor:
    """Round to the nearest of the 256 levels."""
    return images.round().clamp_(0, 255).to(torch.uint8)
