"""Each certainty metric against its definition in loops; its bounds and symmetries by property."""

import math
from collections import Counter
from statistics import fmean, pvariance

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from certus.certainty.metrics import (
    METRICS,
    best,
    mutual_information,
    predictive_ratio,
    predictive_variance,
    rank,
    unconfidence,
    witnessed_entropy,
)

EPS = 1e-9


@st.composite
def draws(draw):
    """Probabilities (T, B, C), some of them exactly 0 and 1."""
    shape = draw(st.tuples(st.integers(1, 6), st.integers(1, 5), st.integers(2, 5)))
    logits = draw(hnp.arrays(np.float64, shape, elements=st.floats(-20, 20) | st.sampled_from([0.0, 1e4])))
    return torch.from_numpy(logits).softmax(-1)


def entropy(p):
    return -sum(x * math.log(x) for x in p if x > 0)


def mean(p):
    return [fmean(column) for column in zip(*p, strict=True)]


def votes(p):
    return Counter(answer.index(max(answer)) for answer in p)


DEFINITIONS = {  # of one image's T answers
    "pv": lambda p: sum(pvariance(column) for column in zip(*p, strict=True)),
    "ev": lambda p: pvariance([entropy(answer) for answer in p]),
    "pe": lambda p: entropy(mean(p)),
    "mi": lambda p: entropy(mean(p)) - fmean(entropy(answer) for answer in p),
    "pr": lambda p: 1 - max(votes(p).values()) / len(p),
}


def test_every_metric_has_a_definition_here():
    assert METRICS.keys() == DEFINITIONS.keys()


@pytest.mark.parametrize("name", METRICS)
@given(p=draws())
def test_metric_equals_its_definition(name, p):
    expected = [DEFINITIONS[name](image) for image in p.transpose(0, 1).tolist()]
    assert METRICS[name](p).tolist() == pytest.approx(expected, abs=EPS)


@pytest.mark.parametrize(
    ("name", "value"), [("pv", 0.5), ("ev", 0.0), ("pe", math.log(2)), ("mi", math.log(2)), ("pr", 0.5)]
)
def test_two_certain_answers_that_contradict_each_other(name, value):
    p = torch.tensor([[[1.0, 0.0, 0.0]], [[0.0, 1.0, 0.0]]])
    assert METRICS[name](p).item() == pytest.approx(value)


@pytest.mark.parametrize(("name", "value"), [("pv", 0.0), ("ev", 0.0), ("pe", math.log(4)), ("mi", 0.0), ("pr", 0.0)])
def test_draws_that_are_all_uniform(name, value):
    p = torch.full((3, 1, 4), 0.25)
    assert METRICS[name](p).item() == pytest.approx(value, abs=1e-6)


@given(draws())
def test_metrics_stay_within_their_bounds(p):
    # PV is convex in each draw, so it is largest where every draw is one-hot. There PV = 1 − Σ_c (n_c/T)² with n_c
    # votes for class c, at most min(T, C) of them nonzero, so Σ_c (n_c/T)² ≥ 1/min(T, C) by Cauchy-Schwarz.
    # PR: the mode has at least T/min(T, C) votes. EV: the entropies lie in [0, log C] (Popoviciu).
    # MI: the mean divergence of T answers from their mean is at most log T, and MI ≤ PE.
    t, _, c = p.shape
    m = min(t, c)
    top = {"pv": 1 - 1 / m, "ev": math.log(c) ** 2 / 4, "pe": math.log(c), "mi": math.log(m), "pr": 1 - 1 / m}
    for name, metric in METRICS.items():
        value = metric(p)
        assert value.min() >= -EPS, name
        assert value.max() <= top[name] + EPS, name


@pytest.mark.parametrize("n", [2, 3, 5])
def test_bounds_of_pv_mi_and_pr_are_attained(n):
    p = torch.eye(n, dtype=torch.float64)[:, None]  # draw t is certain of class t
    assert predictive_variance(p).item() == pytest.approx(1 - 1 / n)
    assert predictive_ratio(p).item() == pytest.approx(1 - 1 / n)
    assert mutual_information(p).item() == pytest.approx(math.log(n))


@given(draws(), st.integers(1, 5))
def test_draws_that_all_agree_leave_only_predictive_entropy(p, repeats):
    same = p[:1].expand(repeats, -1, -1)
    for name in ("pv", "ev", "mi", "pr"):
        assert METRICS[name](same).tolist() == pytest.approx([0.0] * p.shape[1], abs=EPS)


@pytest.mark.parametrize("name", METRICS)
@given(p=draws(), data=st.data())
def test_metric_ignores_the_order_of_draws_and_follows_the_order_of_images(name, p, data):
    t, b, _ = p.shape
    draw_order, image_order = data.draw(st.permutations(range(t))), data.draw(st.permutations(range(b)))
    moved = METRICS[name](p[draw_order][:, image_order])
    assert moved.tolist() == pytest.approx(METRICS[name](p)[image_order].tolist(), abs=EPS)


@pytest.mark.parametrize("name", METRICS)
def test_saturated_probabilities_give_finite_single_precision_values(name):
    p = torch.eye(3).repeat(2, 1, 1)
    p[1] = torch.tensor([[0.0, 1.0, 0.0], [1e-38, 1.0, 1e-45], [1 / 3, 1 / 3, 1 / 3]])
    value = METRICS[name](p)
    assert value.shape == (3,)
    assert value.dtype == torch.float32
    assert torch.isfinite(value).all()


def test_mutual_information_is_not_negative_in_single_precision():
    p = torch.rand(10, 500, 10, generator=torch.Generator().manual_seed(0)).softmax(-1)
    assert mutual_information(p).min() >= -1e-6


@given(draws())
def test_unconfidence_is_1_minus_the_largest_probability(p):
    expected = [1 - max(answer) for answer in p[0].tolist()]
    assert unconfidence(p[0]).tolist() == pytest.approx(expected, abs=1e-15)


few_values = st.sampled_from([-1.0, 0.0, 0.25, 0.5])  # so that ties are common
uncertainties = st.lists(few_values | st.floats(-1e6, 1e6), min_size=1, max_size=12).map(
    lambda values: torch.tensor(values, dtype=torch.float64)
)


@given(uncertainties)
def test_rank_counts_the_images_that_are_more_certain_or_equal_and_earlier(u):
    values = u.tolist()
    expected = [1 + sum((v, j) < (w, i) for j, v in enumerate(values)) for i, w in enumerate(values)]
    assert rank(u).tolist() == expected


@given(uncertainties)
def test_ranks_are_a_permutation_of_1_to_b(u):
    assert sorted(rank(u).tolist()) == list(range(1, len(u) + 1))


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=12, unique=True), st.data())
def test_ranks_without_ties_follow_the_order_of_images(values, data):
    u, order = torch.tensor(values, dtype=torch.float64), data.draw(st.permutations(range(len(values))))
    assert rank(u[order]).tolist() == rank(u)[order].tolist()


def test_ties_keep_their_order_in_a_large_batch():
    u = torch.arange(2000) % 3 / 10.0
    expected = sorted(range(2000), key=u.tolist().__getitem__)  # stable
    assert rank(u).argsort().tolist() == expected


@given(p=draws())
def test_a_witness_that_agrees_adds_nothing_and_one_that_differs_adds_doubt(p):
    answer, witness = p[0], p[-1]
    found = witnessed_entropy(answer, witness)
    expected = [entropy(mean(pair)) for pair in zip(answer.tolist(), witness.tolist(), strict=True)]
    assert found.tolist() == pytest.approx(expected, abs=EPS)
    own = [torch.tensor([entropy(row) for row in each.tolist()]) for each in (answer, witness)]
    assert (found >= (own[0] + own[1]) / 2 - 1e-6).all()
    assert witnessed_entropy(answer, answer).tolist() == pytest.approx(own[0].tolist(), abs=1e-6)


def test_answers_are_ranked_by_the_best_uncertainty_that_there_is():
    assert best(["confidence", "pv", "pe", "witness"]) == "witness"
    assert best(["confidence", "pv", "pe"]) == "pe"
    assert best(["confidence", "labels"]) == "confidence"
