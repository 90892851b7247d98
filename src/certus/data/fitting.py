"""How an oblong picture becomes a square: cropped to its middle, padded to its longer side, or stretched."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from PIL import Image

FITS = ("crop", "pad", "stretch")
DONE = {"crop": "cropped", "pad": "padded", "stretch": "stretched"}


def spare(width: int, height: int, size: int, fit: str) -> float:
    """The fraction of its size at which a picture still has twice the pixels that are needed."""
    return 2 * size / (max(width, height) if fit == "pad" else min(width, height))


def resized(image: Image.Image, extent: tuple[float, float], size: int, fit: str) -> Image.Image:
    """`size` pixels on both sides; with pad on the longer one. The averaging filter avoids false patterns."""
    from PIL import Image

    width, height = extent
    side, target = min(extent), (size, size)
    box = (0.0, 0.0, width, height)
    if fit == "crop":
        left, top = (width - side) / 2, (height - side) / 2
        box = (left, top, left + side, top + side)
    elif fit == "pad":
        factor = size / max(extent)
        target = (max(1, round(width * factor)), max(1, round(height * factor)))
    if image.size == extent == target:
        return image
    return image.resize(target, Image.Resampling.BICUBIC, box=box, reducing_gap=3.0)


def padded(image: Image.Image, size: int) -> Image.Image:
    """In the middle of a square, whose margin has the mean colour of the picture's outline."""
    from PIL import Image

    if image.size == (size, size):
        return image
    pixels = np.asarray(image).reshape(image.height, image.width, -1)
    outline = np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]])
    colour = tuple(int(c) for c in outline.mean(0).round())
    whole = Image.new(image.mode, (size, size), colour if len(colour) > 1 else colour[0])
    whole.paste(image, ((size - image.width) // 2, (size - image.height) // 2))
    return whole
