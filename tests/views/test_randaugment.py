"""RandAugment: ranges, draws, grouping, Cutout, and the conversion from normalised images and back."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from certus.data.dataset import Dataset, Part
from certus.randomness import generator
from certus.views import operations as ops
from certus.views.randaugment import FIXMATCH, RANDAUGMENT, UNCHANGED, Cutout, Draw, Operation, RandAugment, apply

MEAN = torch.tensor([125.3, 123.0, 113.9]).view(1, 3, 1, 1)
STD = torch.tensor([63.0, 62.1, 66.7]).view(1, 3, 1, 1)
GREY = torch.tensor([40.0]).view(1, 1, 1, 1), torch.tensor([80.0]).view(1, 1, 1, 1)
FILL = torch.tensor([125, 123, 114], dtype=torch.uint8).view(1, 3, 1, 1)
POOLS = pytest.mark.parametrize("pool", [FIXMATCH, RANDAUGMENT], ids=["fixmatch", "randaugment"])


def noise(count: int = 40, channels: int = 3, size: int = 12, seed: int = 0) -> torch.Tensor:
    return torch.randint(256, (count, channels, size, size), generator=generator(seed), dtype=torch.uint8)


def normal(x: torch.Tensor) -> torch.Tensor:
    return (x - MEAN) / STD


def ranges(pool):
    """Name: (least, greatest) magnitude."""
    least, greatest = {}, {}
    for operation in pool:
        ends = operation.magnitude(torch.tensor([0.0, 1, 1]), torch.tensor([1.0, 1, -1]))
        least[operation.function.__name__], greatest[operation.function.__name__] = ends.min(), ends.max()
    return {name: (pytest.approx(least[name].item()), pytest.approx(greatest[name].item())) for name in least}


def test_fixmatch_draws_from_the_table_of_its_paper():
    plain, enhanced = (0, 0), (0.05, 0.95)
    assert ranges(FIXMATCH) == {
        "identity": plain,
        "autocontrast": plain,
        "equalize": plain,
        "posterize": (4, 8),
        "solarize": (0, 256),
        "rotate": (-30, 30),
        "shear_x": (-0.3, 0.3),
        "shear_y": (-0.3, 0.3),
        "translate_x": (-0.3, 0.3),
        "translate_y": (-0.3, 0.3),
        **dict.fromkeys(["brightness", "color", "contrast", "sharpness"], enhanced),
    }


def test_randaugment_has_autoaugment_s_ranges():
    wide = ranges(RANDAUGMENT)
    assert set(wide) == set(ranges(FIXMATCH)) | {"invert"}
    assert all(wide[name] == (0.1, 1.9) for name in ("brightness", "color", "contrast", "sharpness"))
    assert wide["translate_x"] == wide["translate_y"] == (-0.45, 0.45)


@pytest.mark.parametrize("name", ["posterize", "solarize", "rotate", "brightness", "sharpness", "translate_x"])
@POOLS
def test_a_higher_level_is_stronger(pool, name):
    [operation] = [o for o in pool if o.function.__name__ == name]
    slope = 7 * (torch.arange(16) + torch.arange(16)[:, None])  # neighbours are alike, as in a photograph
    images = (noise(30, size=16) // 8 + slope).to(torch.uint8)
    change = [
        (operation(images, torch.full((30,), level), torch.ones(30), FILL).float() - images).abs().mean().item()
        for level in (0.1, 0.5, 1.0)
    ]
    assert change == sorted(change)
    assert change[0] < change[-1]


@POOLS
def test_each_image_gets_the_operation_that_it_drew(pool):
    images, g = noise(60), generator("draw")
    draw = Draw(
        torch.randint(len(pool) + 1, (60,), generator=g),
        torch.rand(60, generator=g),
        torch.randint(2, (60,), generator=g) * 2.0 - 1,
    )
    before = images.clone()
    together = apply(pool, images, draw, FILL)
    for i, which in enumerate(draw.which.tolist()):
        alone = images[i : i + 1]
        if which < len(pool):
            function = pool[which].function
            magnitude = pool[which].magnitude(draw.level[i : i + 1], draw.sign[i : i + 1])
            alone = function(alone, magnitude, *([FILL] if function in ops.GEOMETRIC else []))
        assert torch.equal(together[i], alone[0]), i
    assert torch.equal(images, before)
    assert set(draw.which.tolist()) == set(range(len(pool) + 1))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 9), st.sampled_from([1, 3]), st.randoms(use_true_random=False))
def test_a_permuted_batch_with_its_draws_gives_the_permuted_result(count, channels, random):
    images = noise(count, channels, size=6, seed=random.randrange(999))
    which = torch.tensor([random.randrange(len(RANDAUGMENT) + 1) for _ in range(count)], dtype=torch.long)
    level, sign = torch.tensor([[random.random(), random.choice([-1, 1])] for _ in range(count)]).view(-1, 2).unbind(1)
    order = torch.tensor(random.sample(range(count), count), dtype=torch.long)
    result = apply(RANDAUGMENT, images, Draw(which, level, sign), 99)
    permuted = apply(RANDAUGMENT, images[order], Draw(which[order], level[order], sign[order]), 99)
    assert torch.equal(permuted, result[order])


def test_draws_are_uniform_and_independent():
    first, second = RandAugment(MEAN, STD, probability=0.25).draws(20_000, generator("uniform"))
    for draw in (first, second):
        share = draw.which.bincount(minlength=15) / 20_000
        assert share[14].item() == pytest.approx(0.75, abs=0.015)
        assert share[:14].tolist() == pytest.approx([0.25 / 14] * 14, abs=0.005)
        assert draw.level.quantile(torch.linspace(0, 1, 5)).tolist() == pytest.approx([0, 0.25, 0.5, 0.75, 1], abs=0.02)
        assert draw.sign.unique().tolist() == [-1, 1]
        assert draw.sign.mean().abs() < 0.03
    pairs = torch.stack([first.which.double(), second.which, first.level, second.level, first.sign, second.sign])
    assert (pairs.corrcoef() - torch.eye(6)).abs().max() < 0.03


def test_a_fixed_magnitude_is_the_same_for_all():
    for draw in RandAugment(MEAN, STD, operations=3, magnitude=14 / 30).draws(50, generator(0)):
        assert draw.level.tolist() == pytest.approx([14 / 30] * 50)
        assert draw.sign.unique().tolist() == [-1, 1]


def test_the_number_of_operations():
    assert [len(RandAugment(MEAN, STD, operations=n).draws(4, generator(0))) for n in range(4)] == [0, 1, 2, 3]
    twice = RandAugment(MEAN, STD, 2, probability=1, cutout=0, pool=(Operation(ops.invert),))
    x = normal(noise())
    assert torch.allclose(twice(x, generator(0)), x, atol=1e-5)
    once, thrice = (replace(twice, operations=n)(x, generator(0)) for n in (1, 3))
    assert torch.equal(once, thrice)
    assert not torch.allclose(once, x, atol=0.1)


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    channels=st.sampled_from([1, 3]),
    pool=st.sampled_from([FIXMATCH, RANDAUGMENT]),
    magnitude=st.none() | st.floats(0, 1),
    cutout=st.floats(0, 1),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
)
def test_returns_levels_of_the_same_shape_and_dtype(seed, channels, pool, magnitude, cutout, dtype):
    mean, std = (MEAN, STD) if channels == 3 else GREY
    images = (torch.randn(6, channels, 7, 9, generator=generator(seed)) * 2).to(dtype)  # some beyond black and white
    before = images.clone()
    augment = RandAugment(mean, std, 2, magnitude, cutout, pool=pool)
    result = augment(images, generator(seed))
    assert result.shape == images.shape
    assert result.dtype == dtype
    assert torch.equal(images, before)
    assert torch.equal(augment(images, generator(seed)), result)
    if dtype != torch.bfloat16:  # which cannot hold 256 levels about the mean
        level = result.float() * std + mean
        assert torch.allclose(level, level.round(), atol=1e-3)
        assert level.min() > -0.01
        assert level.max() < 255.01


def test_the_given_generator_is_the_only_source_of_randomness():
    augment, x = RandAugment(MEAN, STD), normal(noise())
    state = torch.get_rng_state()
    results = [augment(x, generator("a")), augment(x, generator("a")), augment(x, generator("b"))]
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])


def test_images_of_a_batch_do_not_affect_each_other():
    augment, x = RandAugment(MEAN, STD, probability=1), normal(noise())
    other = torch.where((torch.arange(40) == 7)[:, None, None, None], normal(noise(seed=1)), x)
    same = (augment(x, generator(0)) == augment(other, generator(0))).flatten(1).all(1)
    assert same.tolist() == [i != 7 for i in range(40)]


def test_equal_images_get_different_views():
    x = normal(noise(1)).expand(50, -1, -1, -1)
    assert len(RandAugment(MEAN, STD)(x, generator(0)).unique(dim=0)) > 40


def test_without_operations_and_cutout_the_images_come_back():
    x = normal(noise())
    for augment in (
        RandAugment(MEAN, STD, operations=0, cutout=0),
        RandAugment(MEAN, STD, probability=0, cutout=0),
        RandAugment(MEAN, STD, probability=1, cutout=0, pool=(UNCHANGED,)),
    ):
        assert torch.allclose(augment(x, generator(0)), x, atol=1e-5)


def test_what_is_blacker_than_black_becomes_black():
    beyond = torch.tensor([-300.0, -20.0, 0.4, 254.6, 290.0, 600.0]).view(6, 1, 1, 1).expand(6, 3, 4, 4)
    result = RandAugment(MEAN, STD, operations=0, cutout=0)(normal(beyond), generator(0)) * STD + MEAN
    assert result[:, 0, 0, 0].tolist() == pytest.approx([0, 0, 0, 255, 255, 255], abs=1e-3)


def test_every_option_changes_the_result():
    augment, x = RandAugment(MEAN, STD), normal(noise())
    result = augment(x, generator(0))
    for option in (
        {"operations": 1},
        {"magnitude": 0.5},
        {"cutout": 0.25},
        {"probability": 1.0},
        {"pool": RANDAUGMENT},
        {"mean": MEAN + 20},
        {"std": STD * 1.5},
    ):
        assert not torch.allclose(replace(augment, **option)(x, generator(0)), result, atol=0.01), option


@pytest.mark.parametrize("function", [ops.translate_x, ops.translate_y])
def test_what_comes_from_outside_and_what_is_cut_out_is_the_mean(function):
    x = normal(torch.full((8, 3, 10, 10), 255, dtype=torch.uint8))
    half_a_level = (0.5 / STD).max().item() + 1e-5
    out = Operation(function, 0, 1, both_ways=True)
    gone = RandAugment(MEAN, STD, 1, magnitude=1, cutout=0, probability=1, pool=(out,))(x, generator(0))
    cut = RandAugment(MEAN, STD, 0, cutout=0.5)(x, generator(0))
    assert gone.abs().max() <= half_a_level
    assert ((cut.abs() <= half_a_level) | (cut == x.max(0).values)).all()
    assert 0 < (cut.abs() <= half_a_level).float().mean() < 0.3


def test_the_layout_in_memory_does_not_matter():
    augment, x = RandAugment(MEAN, STD, probability=1, pool=RANDAUGMENT), normal(noise(100))
    result = augment(x.contiguous(memory_format=torch.channels_last), generator(0))
    assert torch.equal(result, augment(x, generator(0)))


def test_takes_a_data_set_s_own_scale():
    part = Part(noise(64, 1) // 2, torch.zeros(64, dtype=torch.long))
    data = Dataset("noise", ("one",), part, part)
    x = data.normalised(part.images)
    assert torch.allclose(RandAugment(*data.scale, operations=0, cutout=0)(x, generator(0)), x, atol=1e-5)
    assert not torch.allclose(RandAugment(*data.scale)(x, generator(0)), x, atol=0.1)


def test_cutout_fills_one_square_per_image():
    x = torch.ones(100, 2, 8, 6)
    cut = Cutout(0.5)(x, generator(0))
    holes = cut == 0
    assert ((cut == 1) | holes).all()
    assert torch.equal(holes[:, 0], holes[:, 1])
    rows, columns = holes[:, 0].any(2), holes[:, 0].any(1)
    assert torch.equal(holes[:, 0], rows[:, :, None] & columns[:, None, :])  # rectangles
    assert rows.sum(1).unique().tolist() == columns.sum(1).unique().tolist() == [2, 3]  # 3 pixels, or 2 at a border
    assert x.eq(1).all()


def test_cutout_is_as_likely_at_every_pixel():
    counts = (Cutout(0.01)(torch.ones(9600, 1, 8, 6), generator(0)) == 0).sum((0, 1))  # of one pixel, 200 expected
    assert counts.shape == (8, 6)
    assert 140 < counts.min() <= counts.max() < 260


def test_cutout_sizes():
    x = torch.ones(200, 1, 8, 8)
    largest = {size: int((Cutout(size)(x, generator(0)) == 0).sum((1, 2, 3)).max()) for size in (0, 0.01, 0.25, 0.5, 1)}
    assert largest == {0: 0, 0.01: 1, 0.25: 4, 0.5: 16, 1: 64}
    assert Cutout(0.5, fill=3)(x, generator(0)).unique().tolist() == [1, 3]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"operations": -1}, "must not be negative, but is -1"),
        ({"magnitude": 9}, "M of 10 is M / 10"),
        ({"magnitude": -0.1}, "not -0.1"),
        ({"probability": 1.5}, "not 1.5"),
        ({"cutout": 16}, "fraction between 0 and 1, not 16"),
        ({"cutout": -0.5}, "not -0.5"),
        ({"pool": ()}, "no operation"),
    ],
)
def test_senseless_settings_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        RandAugment(MEAN, STD, **options)


@pytest.mark.parametrize("shape", [(5, 3), (4, 3, 4), (5, 1, 4, 4)])
def test_inputs_that_are_no_such_images_are_refused(shape):
    with pytest.raises(ValueError, match=r"Images must be \(B, 3, H, W\)"):
        RandAugment(MEAN, STD)(torch.zeros(shape), generator(0))


def test_repr():
    assert repr(RandAugment(MEAN, STD)) == (
        "RandAugment(2 of 14 operations, probability 0.5, magnitude uniform, cutout 0.5)"
    )
    assert "3 of 15 operations, probability 1, magnitude 0.9, cutout 0)" in repr(
        RandAugment(MEAN, STD, 3, 0.9, 0, 1, RANDAUGMENT)
    )
