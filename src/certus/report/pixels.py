"""Pixels of any range as something that a person can look at."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def as_rgb(image: NDArray[Any]) -> NDArray[np.uint8]:
    """(H, W, 3) uint8; one channel becomes dark on white, whatever its range."""
    x = image.astype(np.float64)
    top = 255.0 if image.dtype == np.uint8 and x.max() > 16 else max(1e-9, x.max())
    x = (x / top).clip(0, 1)
    rgb = 1 - np.repeat(x, 3, axis=2) if x.shape[2] == 1 else x
    return (255 * rgb).astype(np.uint8)
