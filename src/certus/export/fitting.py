"""Pictures of any size as squares, inside the graph: what `data.fitting` does with Pillow, as two products of matrices.

Pillow resizes across, then down; from version 13 on it begins with down where the height loses more than twice as many
pixels as the width. A new pixel is a weighted mean of old ones, with the bicubic weights (a = −0.5) of their distance,
stretched where the picture shrinks. Weights are multiples of 2⁻²², and each pass ends in whole bytes. So in double
precision the bytes are the same. A side that shrinks by six times or more is first averaged over blocks. Here that is
part of the weights, without Pillow's rounding in between: a byte may differ by 1, by 2 if the other side grows.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor, nn

PRECISION = 2.0**22
GAP = 3.0  # Pillow's reducing_gap
SUPPORT = 2.0  # of the bicubic filter, in pixels


class Axis:
    """One side of a picture: which part of it is taken, and how many pixels become of it."""

    def __init__(self, pixels: int, start: Tensor, length: Tensor, target: Tensor) -> None:
        self.pixels, self.whole = side(pixels)
        self.start, self.length, self.target = start, length, target
        self.scale = length / target
        self.block = torch.clamp(torch.floor(self.scale / GAP), min=1.0)  # pixels that are averaged first
        reach, blocked = (SUPPORT - 0.5) * self.scale, self.block > 1
        before = torch.clamp(torch.trunc(start - reach), min=0.0)
        after = torch.minimum(torch.ceil(start + length + reach), self.whole)
        self.first = torch.where(blocked, before, torch.zeros_like(before))
        self.last = torch.where(blocked, after, self.whole)
        self.blocks = torch.ceil((self.last - self.first) / self.block)

    def weights(self, size: int) -> Tensor:
        """(size, n): how much each of the n old pixels counts in each new one; rows past the target mean nothing."""
        index = torch.floor((self.pixels - self.first) / self.block)  # of each pixel's block
        ends = torch.minimum((index + 1) * self.block, self.last - self.first)
        members = torch.clamp(ends - index * self.block, min=1.0)
        inside = (self.pixels >= self.first) & (self.pixels < self.last)
        scale = self.scale / self.block
        centre = (self.start - self.first) / self.block + (torch.arange(size, dtype=torch.float64) + 0.5) * scale
        distance = (index[None, :] + 0.5 - centre[:, None]) / torch.clamp(scale, min=1.0)
        raw = cubic(distance) * inside / members  # (size, n)
        share = raw / raw.sum(1, keepdim=True).clamp(min=1e-9)
        return torch.where(self.block > 1, share, torch.round(share * PRECISION) / PRECISION)


def side(count: int) -> tuple[Tensor, Tensor]:
    """The pixels 0 … n − 1 of a side, and n, as numbers of the graph."""
    pixels = torch.arange(count, dtype=torch.float64)
    return pixels, pixels[-1] + 1


def cubic(x: Tensor) -> Tensor:
    """The bicubic filter with a = −0.5."""
    x = x.abs()
    near = (1.5 * x - 2.5) * x * x + 1
    far = ((-0.5 * x + 2.5) * x - 4) * x + 2
    return torch.where(x < 1, near, torch.where(x < 2, far, torch.zeros_like(x)))


def axes(size: int, fit: str, rows: int, columns: int) -> tuple[Axis, Axis]:
    """Down and across."""
    height, width = side(rows)[1], side(columns)[1]
    full = torch.full((), float(size), dtype=torch.float64)
    zero = torch.zeros((), dtype=torch.float64)
    if fit == "crop":
        short = torch.minimum(height, width)
        return Axis(rows, (height - short) / 2, short, full), Axis(columns, (width - short) / 2, short, full)
    if fit == "pad":
        factor = size / torch.maximum(height, width)
        down, across = (torch.clamp(torch.round(n * factor), min=1.0) for n in (height, width))
        return Axis(rows, zero, height, down), Axis(columns, zero, width, across)
    return Axis(rows, zero, height, full), Axis(columns, zero, width, full)


def to_bytes(x: Tensor) -> Tensor:
    """Rounded half up, and within a byte."""
    return torch.floor(x + 0.5).clamp(0.0, 255.0)


def to_square(x: Tensor, down: Tensor, across: Tensor) -> Tensor:
    """Across, then down: (…, H, W) -> (…, size, size) by weights (size, H) and (size, W)."""
    return to_bytes(down @ to_bytes(x @ across.T))


@cache
def down_may_come_first() -> bool:
    """Whether the Pillow that is installed changes the order for tall pictures."""
    try:
        from PIL import Image
    except ImportError:
        return True
    noise = np.random.default_rng(0).integers(0, 256, (33, 31, 3), dtype=np.uint8)
    seen = np.asarray(Image.fromarray(noise).resize((32, 32), Image.Resampling.BICUBIC))
    down, across = (axis.weights(32) for axis in axes(32, "stretch", 33, 31))
    x = torch.from_numpy(noise).permute(2, 0, 1).double()
    return not np.array_equal(to_square(x, down, across).permute(1, 2, 0).numpy(), seen)


class Fit(nn.Module):
    """From uint8 (N, H, W, 3) of any size to whole numbers 0 … 255 (N, channels, size, size) in float32."""

    def __init__(self, size: int, channels: int, fit: str) -> None:
        super().__init__()
        self.size, self.channels, self.fit = size, channels, fit
        self.swaps = down_may_come_first()

    def forward(self, images: Tensor) -> Tensor:
        down, across = axes(self.size, self.fit, images.shape[1], images.shape[2])
        x = images.permute(0, 3, 1, 2).double()  # (N, 3, H, W)
        rows, columns = down.weights(self.size), across.weights(self.size)
        y = to_square(x, rows, columns)  # (N, 3, size, size)
        if self.swaps:
            lost = down.blocks - down.target
            tall = (lost > 0) & (lost > 2 * (across.blocks - across.target))
            y = torch.where(tall, to_square(x.mT, columns, rows).mT, y)
        y = self.padded(y, down.target, across.target) if self.fit == "pad" else y
        if self.channels == 1:
            red, green, blue = y.unbind(1)
            y = torch.floor((299 * red + 587 * green + 114 * blue + 500) / 1000)[:, None]
        return y.float()

    def padded(self, x: Tensor, height: Tensor, width: Tensor) -> Tensor:
        """The picture, which is at the top left, in the middle of a margin that has the mean colour of its outline."""
        place = torch.arange(self.size, dtype=torch.float64)
        in_rows, in_columns = place < height, place < width
        edge = [((place == 0).double() + (place == n - 1)) for n in (height, width)]
        outline = edge[0][:, None] * in_columns + in_rows[:, None] * edge[1]  # (size, size); corners count twice
        colour = torch.round((x * outline).sum((2, 3), keepdim=True) / outline.sum())
        for axis, n in ((2, height), (3, width)):
            source = place - torch.floor((self.size - n) / 2)
            kept = ((source >= 0) & (source < n)).view([-1 if d == axis else 1 for d in range(4)])
            x = torch.where(kept, x.index_select(axis, source.clamp(0, self.size - 1).long()), colour)
        return x
