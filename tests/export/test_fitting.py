"""Squares made inside the graph against Pillow's."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from certus.data.decode import as_channels
from certus.data.fitting import FITS, padded, resized
from certus.export.fitting import Fit


def by_pillow(pixels: np.ndarray, size: int, fit: str, channels: int = 3) -> np.ndarray:
    image = Image.fromarray(pixels)
    return as_channels(np.asarray(padded(resized(image, image.size, size, fit), size)).transpose(2, 0, 1), channels)


def noise(height: int, width: int) -> np.ndarray:
    return np.random.default_rng(height * 1000 + width).integers(0, 256, (height, width, 3), dtype=np.uint8)


def by_graph(pixels: np.ndarray, size: int, fit: str, channels: int = 3) -> np.ndarray:
    return Fit(size, channels, fit)(torch.from_numpy(pixels[None]))[0].numpy()


@pytest.mark.parametrize("fit", FITS)
@given(st.integers(2, 90), st.integers(2, 90), st.sampled_from([8, 16, 31]))
@settings(max_examples=30)
def test_bytes_are_the_same_as_pillows(fit: str, height: int, width: int, size: int) -> None:
    seen, made = by_pillow(noise(height, width), size, fit), by_graph(noise(height, width), size, fit)
    shrinks = max(height, width) / size >= (4 if fit == "pad" else 6)  # then Pillow averages blocks first, and rounds
    assert np.abs(seen - made).max() <= (2 if shrinks else 0)


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize("shape", [(700, 500), (331, 150), (200, 90), (90, 200)])
def test_large_pictures_differ_by_one_at_most(fit: str, shape: tuple[int, int]) -> None:
    difference = np.abs(by_pillow(noise(*shape), 32, fit) - by_graph(noise(*shape), 32, fit))
    assert difference.max() <= 1


@pytest.mark.parametrize("fit", FITS)
def test_grey_and_batches(fit: str) -> None:
    pictures = np.stack([noise(20, 30), noise(20, 30)[::-1]])
    made = Fit(8, 1, fit)(torch.from_numpy(pictures))
    assert made.shape == (2, 1, 8, 8)
    for pixels, one in zip(pictures, made, strict=True):
        assert np.array_equal(by_pillow(pixels, 8, fit, 1), one.numpy())


def test_a_picture_of_the_right_size_is_unchanged() -> None:
    assert np.array_equal(by_graph(noise(16, 16), 16, "crop"), noise(16, 16).transpose(2, 0, 1))
