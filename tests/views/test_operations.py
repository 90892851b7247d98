"""Every operation against Pillow, image by image, and properties that hold for all images."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image, ImageEnhance, ImageOps

from certus.views import operations as ops

AFFINE = Image.Transform.AFFINE

# name: (Pillow's own, range of magnitudes, the magnitude that changes nothing)
EXACT = {
    "identity": (lambda image, _: image, (0, 1), 0),
    "invert": (lambda image, _: ImageOps.invert(image), (0, 1), None),
    "autocontrast": (lambda image, _: ImageOps.autocontrast(image), (0, 1), None),
    "equalize": (lambda image, _: ImageOps.equalize(image), (0, 1), None),
    "posterize": (lambda image, bits: ImageOps.posterize(image, int(bits)), (1, 8.99), 8),
    "solarize": (ImageOps.solarize, (0, 256), 256),
}
ENHANCED = {
    "brightness": (lambda image, factor: ImageEnhance.Brightness(image).enhance(factor), (0, 2), 1),
    "color": (lambda image, factor: ImageEnhance.Color(image).enhance(factor), (0, 2), 1),
    "contrast": (lambda image, factor: ImageEnhance.Contrast(image).enhance(factor), (0, 2), 1),
    "sharpness": (lambda image, factor: ImageEnhance.Sharpness(image).enhance(factor), (0, 2), 1),
}
MOVED = {
    "rotate": (lambda image, v, fill: image.rotate(v, fillcolor=fill), (-200, 200), 0),
    "shear_x": (
        lambda image, v, fill: image.transform(image.size, AFFINE, (1, v, 0, 0, 1, 0), fillcolor=fill),
        (-1, 1),
        0,
    ),
    "shear_y": (
        lambda image, v, fill: image.transform(image.size, AFFINE, (1, 0, 0, v, 1, 0), fillcolor=fill),
        (-1, 1),
        0,
    ),
    "translate_x": (
        lambda image, v, fill: image.transform(
            image.size, AFFINE, (1, 0, int(v * image.width), 0, 1, 0), fillcolor=fill
        ),
        (-1.125, 1.125),
        0,
    ),
    "translate_y": (
        lambda image, v, fill: image.transform(
            image.size, AFFINE, (1, 0, 0, 0, 1, int(v * image.height)), fillcolor=fill
        ),
        (-1.125, 1.125),
        0,
    ),
}
ALL = EXACT | ENHANCED | MOVED
CHANNELS = pytest.mark.parametrize("channels", [1, 3])
SIZE = pytest.mark.parametrize("size", [(32, 32), (9, 14), (2, 3)])


def pictures(channels: int, size: tuple[int, int]) -> torch.Tensor:
    """Noise, dull noise, dark noise with a few lights, two colours, one colour, slopes: 8 of each."""
    g = torch.Generator().manual_seed(0)
    noise = torch.rand(6, 8, channels, *size, generator=g)
    colour = torch.rand(8, channels, 1, 1, generator=g).expand(8, channels, *size)
    slope = torch.linspace(0, 1, size[1]) * (torch.linspace(0.3, 1, size[0])[:, None])
    kinds = [noise[0], 0.4 + noise[1] / 9, noise[2] ** 5, noise[3].round() * 0.7 + 0.1, colour, (slope + colour) / 2]
    return (torch.cat(kinds) * 255).round().to(torch.uint8)  # (48, C, H, W)


def spread(low: float, high: float, count: int) -> torch.Tensor:
    """The whole range, in a random order."""
    return torch.linspace(low, high, count)[torch.randperm(count, generator=torch.Generator().manual_seed(1))]


def one_by_one(pillow, images: torch.Tensor, magnitudes: torch.Tensor, *fill) -> torch.Tensor:
    results = []
    for image, magnitude in zip(images, magnitudes, strict=True):
        array = np.ascontiguousarray(image.permute(1, 2, 0).numpy())
        picture = Image.fromarray(array[..., 0] if len(image) == 1 else array)
        result = np.array(pillow(picture, magnitude.item(), *fill))
        results.append(torch.from_numpy(result).view(*image.shape[1:], len(image)).permute(2, 0, 1))
    return torch.stack(results)


@SIZE
@CHANNELS
@pytest.mark.parametrize("name", EXACT)
def test_equals_pillow(name, channels, size):
    pillow, (low, high), _ = EXACT[name]
    images = pictures(channels, size)
    magnitudes = spread(low, high, len(images))
    assert torch.equal(getattr(ops, name)(images, magnitudes), one_by_one(pillow, images, magnitudes))


@SIZE
@CHANNELS
@pytest.mark.parametrize("name", ENHANCED)
def test_enhances_like_pillow(name, channels, size):
    """Both cut the same single-precision blend to a whole number, but a processor may fuse its multiply and add."""
    pillow, (low, high), _ = ENHANCED[name]
    images = pictures(channels, size)
    magnitudes = spread(low, high, len(images))
    difference = getattr(ops, name)(images, magnitudes).int() - one_by_one(pillow, images, magnitudes).int()
    assert difference.abs().max() <= 1
    assert difference.ne(0).float().mean() < 0.002


@SIZE
@CHANNELS
@pytest.mark.parametrize("name", MOVED)
def test_moves_every_pixel_like_pillow(name, channels, size):
    pillow, (low, high), _ = MOVED[name]
    images = pictures(channels, size)
    magnitudes = spread(low, high, len(images))
    for fill in [(0, 0, 0)[:channels], (7, 128, 250)[:channels]]:
        moved = getattr(ops, name)(images, magnitudes, torch.tensor(fill).view(1, -1, 1, 1))
        expected = one_by_one(pillow, images, magnitudes, fill if channels > 1 else fill[0])
        assert torch.equal(moved, expected)


def test_the_default_fill_is_pillow_s():
    images = pictures(3, (8, 8))
    slopes = spread(-1, 1, len(images))
    assert torch.equal(ops.shear_x(images, slopes), one_by_one(MOVED["shear_x"][0], images, slopes, None))


def test_autocontrast_can_miss_white_by_one_level_as_pillow_does():
    """One pair in 29 of all darkest and brightest levels."""
    low, high = torch.triu_indices(256, 256)[:, ::29]
    images = torch.stack([low, high], dim=1).to(torch.uint8).view(-1, 1, 1, 2)
    expected = one_by_one(EXACT["autocontrast"][0], images, torch.zeros(len(images)))
    assert torch.equal(ops.autocontrast(images), expected)
    assert (expected.amax((1, 2, 3)) == 254).any()


def test_grey_is_pillow_s_luma():
    images = torch.randint(256, (1, 3, 300, 300), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    luma = torch.from_numpy(np.array(Image.fromarray(images[0].permute(1, 2, 0).contiguous().numpy()).convert("L")))
    assert torch.equal(ops.grey(images)[0, 0], luma.float())


@st.composite
def batches(draw, channels=(1, 3)):
    shape = (draw(st.integers(0, 4)), draw(st.sampled_from(channels)), draw(st.integers(1, 7)), draw(st.integers(1, 7)))
    few = st.sampled_from([0, 1, 17, 127, 128, 254, 255])  # ties, extremes and constant channels are common
    return torch.from_numpy(draw(hnp.arrays(np.uint8, shape, elements=st.integers(0, 255) | few)))


@st.composite
def calls(draw, names=tuple(ALL)):
    name, images = draw(st.sampled_from(names)), draw(batches())
    low, high = ALL[name][1]
    magnitude = st.floats(low, high, width=32) if name != "posterize" else st.integers(1, 8)
    return name, images, torch.tensor(draw(st.lists(magnitude, min_size=len(images), max_size=len(images)))).float()


@settings(max_examples=80, deadline=None)
@given(calls())
def test_keeps_shape_dtype_and_its_input(call):
    name, images, magnitudes = call
    before, strength = images.clone(), magnitudes.clone()
    result = getattr(ops, name)(images, magnitudes)
    assert result.shape == images.shape
    assert result.dtype == torch.uint8
    assert torch.equal(images, before)
    assert torch.equal(magnitudes, strength)


@settings(max_examples=80, deadline=None)
@given(calls())
def test_images_of_a_batch_do_not_affect_each_other(call):
    name, images, magnitudes = call
    together = getattr(ops, name)(images, magnitudes)
    for i in range(len(images)):
        assert torch.equal(getattr(ops, name)(images[i : i + 1], magnitudes[i : i + 1])[0], together[i])


@pytest.mark.parametrize("name", [name for name, (*_, neutral) in ALL.items() if neutral is not None])
@settings(max_examples=20, deadline=None)
@given(images=batches())
def test_the_neutral_magnitude_changes_nothing(name, images):
    neutral = torch.full((len(images),), float(ALL[name][2]))
    assert torch.equal(getattr(ops, name)(images, neutral), images)


@settings(max_examples=40, deadline=None)
@given(calls(tuple(MOVED)), st.integers(0, 255))
def test_moving_makes_no_new_values(call, fill):
    name, images, magnitudes = call
    moved = getattr(ops, name)(images, magnitudes, fill)
    known = (moved.flatten(2)[..., None] == images.flatten(2)[:, :, None]).any(-1)  # (B, C, H·W)
    assert (known | (moved.flatten(2) == fill)).all()


@settings(max_examples=40, deadline=None)
@given(calls(tuple(MOVED)), st.integers(0, 255))
def test_a_picture_of_the_fill_s_colour_does_not_move(call, fill):
    name, images, magnitudes = call
    plain = torch.full_like(images, fill)
    assert torch.equal(getattr(ops, name)(plain, magnitudes, fill), plain)


@settings(max_examples=40, deadline=None)
@given(calls(tuple(EXACT | ENHANCED)))
def test_a_constant_picture_stays_constant(call):
    name, images, magnitudes = call
    plain = images[:, :, :1, :1].expand_as(images)
    result = getattr(ops, name)(plain, magnitudes)
    assert torch.equal(result, result[:, :, :1, :1].expand_as(result))
    if name in ("autocontrast", "equalize", "sharpness"):
        assert torch.equal(result, plain)


@settings(max_examples=30, deadline=None)
@given(batches())
def test_known_identities(images):
    ones, side = torch.ones(len(images)), min(images.shape[2:])
    square = images[:, :, :side, :side]
    assert torch.equal(ops.invert(ops.invert(images)), images)
    assert torch.equal(ops.solarize(images, 0 * ones), ops.invert(images))
    assert torch.equal(ops.rotate(images, 180 * ones), images.flip(2, 3))
    assert torch.equal(ops.rotate(square, 90 * ones), square.rot90(1, (2, 3)))
    assert ops.translate_x(images, ones).eq(0).all()
    assert ops.brightness(images, 0 * ones).eq(0).all()
    grey = ops.color(images, 0 * ones)
    assert torch.equal(grey, grey[:, :1].expand_as(grey))


def test_images_of_two_channels_have_no_grey():
    with pytest.raises(ValueError, match="1 or 3 channels, not 2"):
        ops.contrast(torch.zeros(1, 2, 4, 4, dtype=torch.uint8), torch.ones(1))


@settings(max_examples=40, deadline=None)
@given(batches(), st.integers(0, 9), st.integers(0, 255), st.randoms(use_true_random=False))
def test_cutout_against_a_loop(images, side, fill, random):
    b, _, h, w = images.shape
    centres = [(random.randrange(h), random.randrange(w)) for _ in range(b)]
    expected = images.clone()
    for image, (row, column) in zip(expected, centres, strict=True):
        top, left = row - side // 2, column - side // 2
        image[:, max(top, 0) : max(top + side, 0), max(left, 0) : max(left + side, 0)] = fill
    row, column = torch.tensor(centres, dtype=torch.long).view(-1, 2).unbind(1)
    before = images.clone()
    for x in (images, images.double()):
        result = ops.cutout(x, row, column, side, fill)
        assert result.dtype == x.dtype
        assert torch.equal(result, expected.to(x.dtype))
    assert torch.equal(images, before)
