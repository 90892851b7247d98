"""Temperature and threshold: against naive references, and the promise itself by simulation."""

from __future__ import annotations

import math

import pytest
import torch
from builders import normal
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom
from torch import Tensor

from certus.certainty.calibration import (
    ENOUGH,
    best_temperature,
    least_bound,
    levels,
    looked_at,
    tempered,
    upper_bound,
    widest,
)
from certus.certainty.scores import negative_log_likelihood


def answers(n: int, classes: int, seed: int, sharpness: float = 1.0) -> tuple[Tensor, Tensor]:
    """Probabilities, and labels that were drawn from them at temperature 1/sharpness."""
    logits = normal(n, classes, seed=seed) * 2
    random = torch.Generator().manual_seed(seed)
    labels = (logits * sharpness).softmax(1).multinomial(1, generator=random)[:, 0]
    return logits.softmax(1), labels


@pytest.mark.parametrize("sharpness", [0.4, 1.0, 2.5])
def test_the_temperature_is_that_of_a_grid_search_and_finds_how_labels_were_drawn(sharpness: float) -> None:
    p, labels = answers(4000, 5, seed=1, sharpness=sharpness)
    found = best_temperature(p, labels)
    grid = [math.exp(x / 50) for x in range(-150, 151)]
    losses = [negative_log_likelihood(tempered(p.double(), t), labels) for t in grid]
    assert found == pytest.approx(grid[losses.index(min(losses))], rel=0.02)
    assert found == pytest.approx(1 / sharpness, rel=0.1)


@given(st.integers(0, 10_000), st.floats(0.1, 10))
def test_a_temperature_keeps_the_order_of_classes_and_sums_to_one(seed: int, temperature: float) -> None:
    p = answers(20, 4, seed)[0].double()
    q = tempered(p, temperature)
    assert torch.equal(q.argsort(1), p.argsort(1))
    assert torch.allclose(q.sum(1), torch.ones(20, dtype=torch.float64))
    assert torch.allclose(tempered(p, 1.0), p, atol=1e-6)
    sharper = q.amax(1) >= p.amax(1) - 1e-6
    assert bool(sharper.all()) == (temperature <= 1) or abs(temperature - 1) < 0.01


def test_certain_and_right_answers_stay_finite() -> None:
    p = torch.eye(3)
    assert 0 < best_temperature(p, torch.arange(3)) < 1
    assert best_temperature(p, torch.tensor([1, 2, 0])) > 50
    assert tempered(p, 0.01).isfinite().all()


@given(st.integers(1, 300), st.data(), st.floats(0.5, 0.999))
def test_the_bound_is_where_the_binomial_tail_is_as_small_as_wanted(n: int, data: st.DataObject, c: float) -> None:
    wrong = data.draw(st.integers(0, n))
    bound = upper_bound(wrong, n, c)
    if wrong == n:
        assert bound == 1
    else:
        assert binom.cdf(wrong, n, bound) == pytest.approx(1 - c, rel=1e-6)


def naive_levels(u: list[float], wrong: list[bool], confidence: float) -> list[tuple[int, int]]:
    n, count = len(u), 20 if len(u) >= ENOUGH else 10
    found = []
    for j in range(1, count + 1):
        k = n * j // count
        t = sorted(u)[k] if k < n else math.inf
        below = [w for x, w in zip(u, wrong, strict=True) if x < t]
        if below:
            found.append((len(below), sum(below)))
    assert confidence
    return found


@given(st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=1, max_size=60))
def test_levels_count_what_is_below_each_threshold_also_with_ties(pairs: list[tuple[int, bool]]) -> None:
    u, wrong = [float(x) for x, _ in pairs], [w for _, w in pairs]
    found = levels(torch.tensor(u), torch.tensor(wrong), 0.9)
    assert [(level.answered, level.wrong) for level in found] == naive_levels(u, wrong, 0.9)
    assert found[-1].threshold is None
    assert found[-1].answered == len(u)
    for level in found:
        assert level.bound == upper_bound(level.wrong, level.answered, 1 - 0.1 / 10)


def test_the_widest_level_is_chosen_also_if_a_stricter_one_fails() -> None:
    u = torch.arange(1000.0)
    wrong = torch.zeros(1000, dtype=torch.bool)
    wrong[:5] = True  # the most certain answers are wrong, as after learning its own mistakes
    wrong[700:] = True
    found = levels(u, wrong, 0.95)
    chosen = widest(found, 0.03)
    assert chosen is not None
    assert (chosen.answered, chosen.wrong, chosen.threshold) == (700, 5, 700.0)
    assert found[0].bound > 0.03
    assert widest(found, 0.001) is None
    assert len(found) == looked_at(1000) == 20


def test_what_can_be_promised_at_best() -> None:
    assert least_bound(500, 0.95) == pytest.approx(1 - 0.005 ** (1 / 500))
    assert least_bound(0, 0.95) == 1
    right = levels(torch.rand(500), torch.zeros(500, dtype=torch.bool), 0.95)
    assert min(level.bound for level in right) == pytest.approx(least_bound(500, 0.95))


def broken_promises(risk: Tensor, error: float, n: int, chances: int, correct: bool = True) -> float:
    """How often the promise is broken. A picture's uncertainty is uniform on a grid; `risk` is its chance to be wrong.

    The true error below each threshold is then the mean risk of the grid up to it.
    """
    true = risk.cumsum(0) / torch.arange(1, len(risk) + 1)
    broken = 0
    for seed in range(chances):
        random = torch.Generator().manual_seed(seed)
        place = torch.randint(len(risk), (n,), generator=random)
        wrong = torch.rand(n, generator=random) < risk[place]
        found = levels(place.double(), wrong, 0.9)
        if correct:
            chosen = widest(found, error)
        else:  # the share that was seen, without a bound
            seen = [level for level in found if level.wrong / level.answered <= error]
            chosen = max(seen, key=lambda level: level.answered, default=None)
        if chosen is not None:
            last = len(risk) if chosen.threshold is None else int(chosen.threshold)
            broken += float(true[last - 1]) > error
    return broken / chances


RISKS = {  # at every place the error among the answered is a little above 5 % …
    "flat": torch.full((2000,), 0.0501),
    "rising": torch.linspace(0, 0.3, 2000),
    "worst first": torch.linspace(0.2, 0.0, 2000),
}


@pytest.mark.parametrize("shape", RISKS)
def test_the_promise_is_broken_no_more_often_than_stated(shape: str) -> None:
    chances = 400
    broken = broken_promises(RISKS[shape], 0.05, 400, chances)
    assert broken <= 0.1 + 3 * math.sqrt(0.1 * 0.9 / chances)


def test_without_the_bound_the_promise_is_broken_often() -> None:
    assert broken_promises(RISKS["flat"], 0.05, 400, 200, correct=False) > 0.4
