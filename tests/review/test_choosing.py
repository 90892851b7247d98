"""What to label next: against naive loops, and what must hold for any answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import certus
from certus.errors import UsageError
from certus.review import choosing
from certus.review.choosing import STRATEGIES, ambivalence, label_next, middles, most_uncertain, moved, nearest, owners

Array = NDArray[Any]


def made(seed: int, n: int = 60, classes: int = 4, width: int = 3) -> tuple[Array, Array, Array]:
    """Answers, features and labels, a third of which are known."""
    random = np.random.default_rng(seed)
    p = random.dirichlet(np.ones(classes), n)
    return p, random.normal(size=(n, width)), np.where(random.random(n) < 1 / 3, 0, -1)


def naive_ambivalence(row: Array) -> float:
    first, second, *_ = sorted(row, reverse=True)
    return 1 - (first - second)


@given(st.integers(0, 10_000))
def test_ambivalence_is_what_a_loop_finds(seed: int) -> None:
    p, _, _ = made(seed)
    np.testing.assert_allclose(ambivalence(p), [naive_ambivalence(row) for row in p], atol=1e-12)


def test_ambivalence_of_certain_and_of_equal_answers() -> None:
    assert ambivalence(np.array([[1.0, 0.0, 0.0], [0.4, 0.4, 0.2]])).tolist() == [0.0, 1.0]


@given(st.integers(0, 10_000), st.integers(1, 80), st.sampled_from(STRATEGIES))
@settings(max_examples=60)
def test_chosen_pictures_are_different_and_have_no_label(seed: int, n: int, strategy: str) -> None:
    p, x, labels = made(seed)
    chosen = label_next(p, x, labels, n, strategy, seed)
    assert len(chosen) == len(set(chosen.tolist())) == min(n, int((labels < 0).sum()))
    assert (labels[chosen] < 0).all()
    assert np.array_equal(chosen, label_next(p, x, labels, n, strategy, seed))


@given(st.integers(0, 10_000))
def test_the_most_uncertain_come_first_and_equal_ones_in_their_order(seed: int) -> None:
    random = np.random.default_rng(seed)
    doubt, known = random.integers(0, 4, 30) / 4, random.random(30) < 0.3
    naive = sorted((i for i in range(30) if not known[i]), key=lambda i: (-doubt[i], i))
    assert most_uncertain(doubt, known, 7).tolist() == naive[:7]


def test_random_draws_differ_by_seed_and_ignore_the_answers() -> None:
    p, x, labels = made(0)
    a, b = (label_next(p, x, labels, 10, "random", seed) for seed in (1, 2))
    assert a.tolist() != b.tolist()
    assert a.tolist() == label_next(p[::-1], x, labels, 10, "random", 1).tolist()


@given(st.integers(0, 10_000))
def test_the_nearest_of_others_is_what_a_loop_finds(seed: int) -> None:
    random = np.random.default_rng(seed)
    x, others = (random.normal(size=(n, 4)).astype(np.float32) for n in (20, 5))
    which, apart = nearest(x, others)
    naive = [[sum((a - b) ** 2 for a, b in zip(row, o, strict=True)) for o in others.tolist()] for row in x.tolist()]
    assert which.tolist() == [min(range(5), key=row.__getitem__) for row in naive]
    np.testing.assert_allclose(apart, [min(row) for row in naive], atol=1e-4)


def test_slices_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    x, others = (np.random.default_rng(n).normal(size=(n, 4)).astype(np.float32) for n in (50, 9))
    whole = nearest(x, others)
    monkeypatch.setattr(choosing, "SLICE", 30)
    for a, b in zip(whole, nearest(x, others), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


@given(st.integers(0, 10_000))
def test_centres_move_to_the_weighted_means_of_their_rows(seed: int) -> None:
    random = np.random.default_rng(seed)
    x, centres = (random.normal(size=(n, 2)).astype(np.float32) for n in (30, 4))
    weight, to_fixed = random.random(30) + 0.1, random.random(30) * 2
    owner = owners(x, centres, to_fixed)
    expected = centres.copy()
    for j in range(4):
        mine = []
        for i in range(30):
            apart = [float(((x[i] - c) ** 2).sum()) for c in centres]
            if min(apart) <= to_fixed[i] and apart.index(min(apart)) == j:
                mine.append(i)
        assert sorted(mine) == np.flatnonzero(owner == j).tolist()
        if mine:
            expected[j] = sum(weight[i] * x[i] for i in mine) / sum(weight[i] for i in mine)
    np.testing.assert_allclose(moved(x, weight, centres, owner), expected, atol=1e-5)


def groups(sizes: tuple[int, ...], seed: int = 0) -> tuple[Array, Array]:
    """Features in narrow groups far apart, and the group of each."""
    random = np.random.default_rng(seed)
    which = np.repeat(np.arange(len(sizes)), sizes)
    return (10 * np.eye(len(sizes))[which] + 0.1 * random.normal(size=(len(which), len(sizes)))), which


@pytest.mark.parametrize("seed", range(5))
def test_every_kind_is_offered_once_and_the_largest_first(seed: int) -> None:
    x, which = groups((40, 10, 25, 5))
    chosen = middles(x.astype(np.float32), np.ones(80), np.empty((0, 4), np.float32), 4, np.random.default_rng(seed))
    assert which[chosen].tolist() == [0, 2, 1, 3]


def test_near_duplicates_are_offered_once_where_the_most_uncertain_are_all_alike(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x, which = groups((30, 30, 30))
    p = np.array([[0.5, 0.5], [0.55, 0.45], [0.6, 0.4]])[which]
    assert set(which[label_next(p, x, n=3, strategy="uncertain")]) == {0}
    monkeypatch.setattr(choosing, "SHARE", 1.0)
    assert set(which[label_next(p, x, n=3)]) == {0, 1, 2}


def test_kinds_that_are_labelled_already_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "SHARE", 1.0)
    x, which = groups((30, 30, 30))
    labels = np.full(90, -1)
    labels[np.flatnonzero(which != 1)[::5]] = 0
    chosen = label_next(np.full((90, 2), 0.5), x, labels, n=1)
    assert set(which[chosen]) == {1}


def test_certain_pictures_are_no_candidates() -> None:
    x, which = groups((20, 80))
    p = np.array([[0.5, 0.5], [1.0, 0.0]])[which]
    assert (which[label_next(p, x, n=5)] == 0).sum() >= 4


def test_copies_and_answers_without_doubt_are_no_error() -> None:
    chosen = label_next(np.eye(2)[np.zeros(9, int)], np.zeros((9, 3)), n=4)
    assert len(set(chosen.tolist())) == 4


def test_long_features_are_projected_with_their_distances_kept() -> None:
    x = np.random.default_rng(0).normal(size=(20, 2000)).astype(np.float32)
    short = choosing.narrowed(x)
    assert short.shape == (20, choosing.WIDTH)
    ratio = np.linalg.norm(short[1:] - short[0], axis=1) / np.linalg.norm(x[1:] - x[0], axis=1)
    assert np.abs(ratio - 1).max() < 0.25


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"n": 0}, "`n` must be at least 1, but is 0"),
        ({"strategy": "certius"}, "Did you mean 'certus'"),
        ({"features": None}, "needs `features`"),
        ({"features": np.zeros((3, 2))}, r"shape is \(3, 2\)"),
        ({"features": np.full((60, 2), np.nan)}, "must be finite"),
        ({"labels": [0]}, r"`labels` must have the shape \(60,\)"),
        ({"probabilities": np.full((60, 2), 2.0)}, "from 0 to 1"),
    ],
)
def test_bad_input(arguments: dict[str, Any], sentence: str) -> None:
    p, x, labels = made(0)
    with pytest.raises(UsageError, match=sentence):
        certus.label_next(**{"probabilities": p, "features": x, "labels": labels, **arguments})
