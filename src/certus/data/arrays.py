"""Arrays that a user brings: which axis has the channels, which rows have no label, and what scale the pixels have."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from certus.errors import UsageError
from certus.text import brief

FULL = 128  # bytes that reach so far use the whole range 0…255
BEYOND = 0.25  # a resized picture may leave the range 0…1 by so much


def channels_first(images: Tensor) -> Tensor:
    """(n, h, w), (n, h, w, c) or (n, c, h, w) as (n, c, h, w).

    The channels are the first or the last axis of an image: the one that is shorter than both others, or else the one
    beside two equal sides.
    """
    if images.dim() == 3:
        return images[:, None]
    first, middle, last = images.shape[1:]
    if first < min(middle, last) or (middle == last and last < first):
        return images
    if last < min(first, middle) or (first == middle and middle < last):
        return images.permute(0, 3, 1, 2).contiguous()
    raise UsageError(
        f"Images of shape {first}×{middle}×{last} may have their channels first or last: make one of these axes the "
        "shortest of the three."
    )


def known_labels(y: Any) -> tuple[NDArray[np.bool_], NDArray[Any]]:
    """Which rows have a label, and their labels. Without one are −1, NaN, and among objects and texts None and ""."""
    y = np.asarray(y)
    if y.dtype.kind == "O":
        known = np.array([not is_mark(value) for value in y], dtype=bool)
        labels = y[known]
        kinds = sorted({"text" if isinstance(v, str) else "numbers" for v in labels})
        if len(kinds) > 1:
            text, number = (next(v for v in labels if isinstance(v, str) is wanted) for wanted in (True, False))
            raise ValueError(f"y has labels of two kinds, such as {text!r} and {number!r}: use text or numbers alone.")
        return known, labels if kinds == ["text"] else np.array(labels.tolist())
    if y.dtype.kind in "US":
        if marks := {"-1", "nan", "None"} & set(y.tolist()):
            raise ValueError(
                f"y is an array of text with {sorted(marks)[0]!r}, which may be a class or the mark of unlabelled "
                "rows: mark them by '' or in an array of dtype object."
            )
        known = y != ""
    elif y.dtype.kind in "iuf":
        known = (y != -1) & ~np.isnan(y)
    else:
        known = np.ones(len(y), dtype=bool)
    return known, y[known]


def as_column(y: Any) -> Any:
    """A list with text or None as an array of objects: numpy would turn −1 and None into text."""
    if isinstance(y, Sequence) and any(v is None or isinstance(v, str) for v in y):
        return np.array(y, dtype=object)
    return y


def is_mark(value: Any) -> bool:
    """Whether this stands for no label: None, "", −1, NaN, or the NA of pandas."""
    if isinstance(value, (int, float, np.number)) and not isinstance(value, bool):
        return bool(value == -1 or math.isnan(value))
    return value is None or type(value).__name__ == "NAType" or (isinstance(value, str) and value == "")


@dataclass(frozen=True)
class Pixels:
    """The range of the pixels that a model was trained on."""

    low: float = 0.0
    high: float = 255.0

    @classmethod
    def of(cls, images: Tensor) -> Pixels:
        if not images.numel():
            return cls(0.0, 0.0)
        usual = images.dtype == torch.uint8 or images.is_floating_point()  # torch has no extremes of some others
        return cls(*(float(end) for end in (images if usual else images.double()).aminmax()))

    @property
    def unit(self) -> bool:
        return self.low >= 0 and self.high <= 1

    @property
    def full(self) -> bool:
        return self.low >= 0 and FULL <= self.high <= 255

    def __str__(self) -> str:
        return f"{self.low:.4g} to {self.high:.4g}"

    def rescaled(self, images: Tensor) -> Tensor:
        """Images in this range; bytes become fractions or fractions bytes, with a warning. Refuses any other range."""
        if self.full and images.dtype == torch.uint8:
            return images
        given = Pixels.of(images)
        if given.low == given.high == 0:
            return images
        if self.full:
            if given.low >= 0 and given.high <= 255 and not fractions(images, given):
                return images
            if fractions(images, given):
                warn(f"The pixels are from {given}, and the model was trained on 0 to 255: they are multiplied by 255.")
                return images.float() * 255
        elif self.unit:
            if given.low >= -BEYOND and given.high <= 1 + BEYOND:
                return images
            if given.low >= 0 and given.high <= 255 and (given.full or images.dtype == torch.uint8):
                warn(f"The pixels are from {given}, and the model was trained on 0 to 1: they are divided by 255.")
                return images.float() / 255
        else:
            room = self.high - self.low
            small = fractions(images, given) and self.high >= 8
            if given.low >= self.low - room and given.high <= self.high + room and not small:
                return images
        raise UsageError(
            f"The pixels are from {given}, but the model was trained on pixels from {self}: bring them to that scale."
        )


def fractions(images: Tensor, range: Pixels) -> bool:
    """Whether these are bytes that were divided by 255."""
    return images.is_floating_point() and range.unit


def warn(text: str) -> None:
    warnings.warn(text, UserWarning, stacklevel=4)  # at the caller of `predict`


def check_rank(shape: tuple[int, ...]) -> None:
    if len(shape) not in (2, 3, 4):
        raise UsageError(f"X must be vectors (n, d) or images (n, h, w[, c]), but has the shape {brief(shape)}.")
