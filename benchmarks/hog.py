"""Histograms of oriented gradients (Dalal & Triggs 2005): how a picture was described before networks learned it.

The gradient of each pixel, in the channel where it is largest, votes for its orientation in the histogram of its cell.
Blocks of 2×2 cells are normalised together, with values cut off at 0.2 (L2-hys), and put one after the other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

BINS, CELL, BLOCK = 9, 4, 2  # orientations in 0 … 180°, pixels, cells
CLIP, TINY = 0.2, 1e-5
SLICE = 1000  # images at a time
Array = NDArray[Any]


def hog(images: Array) -> Array:
    """The descriptors (N, D) of images (N, C, H, W). Pixels beyond the last whole cell are left out."""
    return np.concatenate([described(images[i : i + SLICE]) for i in range(0, len(images), SLICE)])


def described(images: Array) -> Array:
    return blocks(histograms(*gradients(images.astype(np.float32))))


def gradients(images: Array) -> tuple[Array, Array]:
    """Length and orientation (N, H, W) of the gradient; at a border its part across the border is 0."""
    down, right = np.zeros_like(images), np.zeros_like(images)
    down[:, :, 1:-1] = images[:, :, 2:] - images[:, :, :-2]
    right[..., 1:-1] = images[..., 2:] - images[..., :-2]
    steepest = (down**2 + right**2).argmax(1, keepdims=True)  # of the channels
    down, right = (np.take_along_axis(g, steepest, 1)[:, 0] for g in (down, right))
    return np.hypot(down, right), np.arctan2(down, right) % np.pi


def histograms(length: Array, angle: Array) -> Array:
    """The votes (N, rows, columns, BINS) of each cell; a pixel's vote is shared by the two nearest orientations."""
    n, rows, columns = len(length), length.shape[1] // CELL, length.shape[2] // CELL
    at = angle * (BINS / np.pi)
    bins = np.arange(BINS).reshape(-1, 1, 1, 1)
    apart = np.abs(at - bins)
    votes = np.maximum(0, 1 - np.minimum(apart, BINS - apart)) * length  # (BINS, N, H, W)
    votes = votes[:, :, : rows * CELL, : columns * CELL].reshape(BINS, n, rows, CELL, columns, CELL)
    return votes.sum((3, 5)).transpose(1, 2, 3, 0)


def blocks(cells: Array) -> Array:
    """Every block of 2×2 neighbouring cells, normalised, cut off and normalised again."""
    n, rows, columns, _ = cells.shape
    parts = [
        cells[:, i : rows - BLOCK + 1 + i, j : columns - BLOCK + 1 + j] for i in range(BLOCK) for j in range(BLOCK)
    ]
    found = normalised(np.minimum(normalised(np.concatenate(parts, -1)), CLIP))
    return found.reshape(n, -1).astype(np.float32)


def normalised(vectors: Array) -> Array:
    return vectors / np.sqrt((vectors**2).sum(-1, keepdims=True) + TINY**2)
