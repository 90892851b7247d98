"""The strong view of whole batches: each part against a naive image by image, and as a whole."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from certus.views.distort import Distort, cut, recolour, warp

seeds = st.integers(0, 2**31)


def pictures(n=4, channels=3, h=8, w=8, seed=0):
    return torch.randn(n, channels, h, w, generator=torch.Generator().manual_seed(seed))


def unchanged(n):
    return {
        **{name: torch.zeros(n) for name in ("angle", "size", "stretch", "shear")},
        "shift": torch.zeros(n, 2),
        "mirror": torch.ones(n),
    }


def test_without_change_the_pictures_stay():
    x = pictures()
    assert torch.allclose(warp(x, **unchanged(4)), x, atol=1e-5)
    zero = torch.zeros(4)
    assert torch.allclose(recolour(x, zero, zero, zero, torch.zeros(4, 3)), x, atol=1e-5)
    assert torch.equal(cut(x, torch.full((4, 2), 0.5), torch.zeros(4, 2)), x)


def test_known_maps():
    x = pictures()
    mirrored = warp(x, **unchanged(4) | {"mirror": -torch.ones(4)})
    assert torch.allclose(mirrored, x.flip(3), atol=1e-5)
    turned = warp(x, **unchanged(4) | {"angle": torch.full((4,), math.pi / 2)})
    assert torch.allclose(turned, x.rot90(1, (2, 3)), atol=1e-4)
    moved = warp(x, **unchanged(4) | {"shift": torch.tensor([[0.25, 0.0]] * 4)})  # a quarter of half the width: 1 pixel
    assert torch.allclose(moved[..., :-1], x[..., 1:], atol=1e-5)
    shrunk = warp(x, **unchanged(4) | {"size": torch.full((4,), math.log(2.0))})
    assert not torch.allclose(shrunk, x)


@given(seeds)
def test_colours_are_those_of_each_picture_alone(seed):
    x = pictures(seed=seed)
    random = torch.Generator().manual_seed(seed)
    contrast, brightness, saturation = torch.randn(3, 4, generator=random)
    cast = torch.randn(4, 3, generator=random)
    found = recolour(x, contrast, brightness, saturation, cast)
    for i in range(4):
        mean = x[i].mean()
        y = (x[i] - mean) * math.exp(contrast[i]) + mean + brightness[i]
        grey = y.mean(0)
        y = torch.stack([grey + (y[c] - grey) * math.exp(saturation[i]) + cast[i, c] for c in range(3)])
        assert torch.allclose(found[i], y, atol=1e-4)


def test_grey_pictures_have_no_colours_to_change():
    x, zero = pictures(channels=1), torch.zeros(4)
    assert torch.allclose(recolour(x, zero, zero, zero + 3, torch.full((4, 1), 9.0)), x, atol=1e-5)


@given(seeds)
def test_the_hole_is_where_it_should_be(seed):
    x = pictures(h=6, w=9, seed=seed)
    random = torch.Generator().manual_seed(seed)
    centre, sides = torch.rand(4, 2, generator=random), torch.rand(4, 2, generator=random)
    found = cut(x, centre, sides)
    for i in range(4):
        for r in range(6):
            for c in range(9):
                y, z = (r + 0.5) / 6, (c + 0.5) / 9
                inside = abs(y - centre[i, 0]) < sides[i, 0] / 2 and abs(z - centre[i, 1]) < sides[i, 1] / 2
                assert torch.equal(found[i, :, r, c], torch.zeros(3) if inside else x[i, :, r, c])


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("flip", [False, True])
def test_a_view_depends_on_its_generator_alone_and_differs_from_picture_to_picture(channels, flip):
    x = pictures(1, channels).expand(16, -1, -1, -1)
    view = Distort(flip)
    a, b = (view(x, torch.Generator().manual_seed(1)) for _ in range(2))
    assert torch.equal(a, b)
    assert a.shape == x.shape
    assert len({tuple(picture.flatten().tolist()) for picture in a}) == 16
    assert not torch.equal(a, view(x, torch.Generator().manual_seed(2)))


def test_a_larger_strength_changes_more():
    x = pictures(64)
    change = [
        (Distort(strength=s, hole=0.0)(x, torch.Generator().manual_seed(0)) - x).abs().mean() for s in (0, 0.3, 1)
    ]
    assert change[0] < 1e-5
    assert change[0] < change[1] < change[2]
