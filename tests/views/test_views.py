"""Augmentations of whole batches against image-by-image loops; random per image, and pure."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from certus.errors import UsageError
from certus.views import Chain, Flip, Noise, Translate, weak

seeds = st.integers(0, 2**32)


def random(seed=0):
    return torch.Generator().manual_seed(seed)


def images_of(b=6, c=2, h=5, w=7, seed=0, dtype=torch.float32):
    return torch.randn(b, c, h, w, generator=random(seed), dtype=dtype)


def crops(image, pixels):
    """Every shift (dy, dx) of one image, by padding and cutting."""
    _, h, w = image.shape
    padded = np.pad(image, ((0, 0), (pixels, pixels), (pixels, pixels)), mode="reflect")
    size = range(2 * pixels + 1)
    return {(y - pixels, x - pixels): padded[:, y : y + h, x : x + w] for y in size for x in size}


def shift_of(before, after, pixels):
    """How far one image was shifted; None where the other is no shift of it."""
    found = [s for s, crop in crops(before.numpy(), pixels).items() if np.array_equal(crop, after.numpy())]
    return found[0] if found else None


@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 6), st.integers(1, 6), seeds, st.data())
def test_translate_pads_by_reflection_and_cuts(b, c, h, w, seed, data):
    pixels = data.draw(st.integers(0, min(h, w) - 1))
    images = images_of(b, c, h, w, seed)
    moved = Translate(pixels)(images, random(seed))
    assert moved.shape == images.shape
    assert all(shift_of(before, after, pixels) for before, after in zip(images, moved, strict=True))


def test_every_image_gets_its_own_shift_and_all_shifts_are_equally_likely():
    n, pixels = 2500, 2
    images = images_of(1, 1, 6, 6).expand(n, -1, -1, -1)
    moved = Translate(pixels)(images, random())
    shifts = crops(images[0].numpy(), pixels)
    counts = {s: int(sum(np.array_equal(crop, after) for after in moved.numpy())) for s, crop in shifts.items()}
    assert len(counts) == 25
    assert sum(counts.values()) == n
    assert all(abs(count - n / 25) <= 4.5 * (n / 25) ** 0.5 for count in counts.values())


def test_both_channels_of_an_image_move_together():
    images = images_of(20, 1).expand(-1, 2, -1, -1)
    moved = Translate(2)(images, random())
    assert torch.equal(moved[:, 0], moved[:, 1])


def test_translate_by_0_pixels_changes_nothing():
    assert torch.equal(Translate(0)(images_of(), random()), images_of())


@pytest.mark.parametrize(("h", "w"), [(4, 9), (9, 4), (4, 4)])
@pytest.mark.parametrize("pixels", [4, 5, 100])
def test_a_shift_too_large_for_the_image_is_refused(h, w, pixels):
    Translate(3)(images_of(h=h, w=w), random())
    with pytest.raises(UsageError, match=f"`translate` must be less than .* 4 pixels, but is {pixels}"):
        Translate(pixels)(images_of(h=h, w=w), random())


@given(seeds)
def test_flip_mirrors_an_image_from_left_to_right_or_leaves_it(seed):
    images = images_of(8)
    flipped = Flip()(images, random(seed))
    for before, after in zip(images.tolist(), flipped.tolist(), strict=True):
        assert after in (before, [[row[::-1] for row in channel] for channel in before])


def test_half_of_the_images_are_mirrored():
    n = 2000
    images = images_of(n, 1, 1, 2)
    mirrored = (Flip()(images, random()) != images).flatten(1).any(1)
    assert abs(mirrored.sum() - n / 2) <= 4.5 * (n / 4) ** 0.5


@pytest.mark.parametrize("shape", [(50, 2), (10, 1, 10, 10)])
def test_noise_is_gaussian_of_the_given_deviation(shape):
    images, n = torch.full(shape, 3.0).repeat(100, *[1] * (len(shape) - 1)), 100 * np.prod(shape)
    noise = (Noise(0.5)(images, random()) - images) / 0.5
    assert noise.mean().abs() <= 4.5 / n**0.5
    assert (noise.square().mean() - 1).abs() <= 4.5 * (2 / n) ** 0.5
    assert (noise.pow(4).mean() - 3).abs() <= 4.5 * (96 / n) ** 0.5
    assert noise.unique(dim=0).shape == noise.shape


def test_noise_of_deviation_0_changes_nothing():
    assert torch.equal(Noise(0.0)(images_of(), random()), images_of())


def test_chain_applies_its_parts_in_order_with_one_generator():
    first, second = Translate(2), Noise(0.1)
    once = random()
    expected = second(first(images_of(), once), once)
    assert torch.equal(Chain((first, second))(images_of(), random()), expected)
    assert not torch.equal(Chain((second, first))(images_of(), random()), expected)


def test_an_empty_chain_gives_the_images_themselves():
    images = images_of()
    assert Chain()(images, random()) is images


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        ({}, ()),
        ({"translate": 2}, (Translate(2),)),
        ({"flip": True}, (Flip(),)),
        ({"noise": 0.1}, (Noise(0.1),)),
        ({"translate": 1, "flip": True, "noise": 0.2}, (Translate(1), Flip(), Noise(0.2))),
    ],
)
def test_weak_view_has_the_parts_of_its_settings(settings, parts):
    assert weak(**settings) == Chain(parts)


VIEWS = [Translate(2), Flip(), Noise(0.1), weak(2, True, 0.1)]


@pytest.mark.parametrize("view", VIEWS)
def test_view_is_pure(view):
    images, state = images_of(16), torch.get_rng_state()
    out = view(images, random(1))
    assert torch.equal(images, images_of(16))
    assert torch.equal(out, view(images, random(1)))
    assert not torch.equal(out, view(images, random(2)))
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("view", VIEWS)
def test_images_of_a_batch_are_not_all_treated_alike(view):
    out = view(images_of(1).expand(16, -1, -1, -1), random())
    assert len(out.flatten(1).unique(dim=0)) > 1


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_shape_and_dtype_stay(view, dtype):
    images = images_of(dtype=dtype)
    out = view(images, random())
    assert out.shape == images.shape
    assert out.dtype == dtype


@pytest.mark.parametrize("view", VIEWS)
def test_channels_last_stays_and_changes_no_value(view):
    images = images_of()
    out = view(images.contiguous(memory_format=torch.channels_last), random())
    assert out.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(out, view(images, random()))
