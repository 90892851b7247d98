"""Refinements: filters against loops and what they may change, the temperature against its formula, pseudo-labels."""

import math
from dataclasses import replace

import pytest
import torch
from builders import normal, step_of
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from certus.core.losses import cross_entropy, entropy, js, kl, mse
from certus.core.refinements import (
    Harden,
    Probabilistic,
    Temper,
    Threshold,
    TopK,
    drop_probability,
    hard_keep,
    temperatures,
)
from certus.core.schedules import Constant
from certus.core.target import Target

ranks = st.integers(1, 12).flatmap(lambda b: st.permutations(range(1, b + 1))).map(torch.tensor)


def step_at(number=0, steps=300, batch=8, seed=0):
    return step_of(torch.zeros(batch, 1), number=number, steps=steps, seed=seed)


def target_of(batch, seed=0):
    """Random logits, weights, temperatures and uncertainties."""
    random = torch.Generator().manual_seed(seed)
    logits = torch.randn(batch, 3, generator=random)
    weight, temperature, uncertainty = torch.rand(3, batch, generator=random).add(0.1)
    return Target(logits, weight, temperature, uncertainty)


# --- filters ----------------------------------------------------------------------------------------------------------


def only_weight_changed(before, after):
    return (
        torch.equal(before.logits, after.logits)
        and torch.equal(before.temperature, after.temperature)
        and torch.equal(before.rank, after.rank)
    )


@given(ranks, st.floats(-1, 14))
def test_hard_filter_keeps_the_k_most_certain(rank, k):
    assert hard_keep(rank, k).tolist() == [r <= k for r in rank.tolist()]
    assert hard_keep(rank, k).sum() == min(max(math.floor(k), 0), len(rank))


@given(ranks, st.floats(0, 1))
def test_drop_probability_grows_linearly_with_rank(rank, p_max):
    b = len(rank)
    expected = [p_max * (r - 1) / (b - 1) if b > 1 else 0.0 for r in rank.tolist()]
    assert drop_probability(rank, p_max).tolist() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("b", [2, 3, 512])
@pytest.mark.parametrize("p_max", [0.0, 0.6, 1.0])
def test_drop_probability_is_0_for_the_most_certain_and_p_max_for_the_least(b, p_max):
    p = drop_probability(torch.arange(1, b + 1), p_max)
    assert p[0] == 0
    assert p[-1].item() == pytest.approx(p_max)


def test_a_single_image_is_never_dropped():
    assert drop_probability(torch.tensor([1]), 1.0).tolist() == [0.0]


@pytest.mark.parametrize(("batch", "epoch", "kept"), [(512, 1, 8), (512, 10, 80), (512, 64, 512), (512, 300, 512)])
def test_top_k_keeps_8_more_images_of_512_every_epoch(batch, epoch, kept):
    target = target_of(batch)
    after = TopK()(target, step_at(epoch - 1, batch=batch))
    assert (after.weight > 0).sum() == kept
    assert target.uncertainty[after.weight > 0].max() == target.uncertainty.sort().values[kept - 1]


@given(st.integers(1, 12), st.integers(0, 12), st.integers(0, 2**32))
def test_top_k_equals_a_loop(b, k, seed):
    target = target_of(b, seed)
    after = TopK(Constant(k))(target, step_at(batch=b))
    most_certain = sorted(range(b), key=lambda i: target.uncertainty[i].item())[:k]
    assert after.weight.tolist() == [w if i in most_certain else 0.0 for i, w in enumerate(target.weight.tolist())]
    assert only_weight_changed(target, after)


@pytest.mark.parametrize("p_max", [0.3, 1.0])
def test_images_are_dropped_as_often_as_drop_probability_says(p_max):
    b, n = 9, 2000
    target = target_of(b)
    drop = Probabilistic(Constant(p_max))
    dropped = torch.stack([drop(target, step_at(i, n, b)).weight == 0 for i in range(n)]).double()  # (n, B)
    p = drop_probability(target.rank, p_max).double()
    within = 4.5 * (p * (1 - p) / n).sqrt()  # a chance of 1 in 10⁵ per image, and the seeds are fixed
    assert ((dropped.mean(0) - p).abs() <= within + 1e-12).all()  # exact where p is 0 or 1


def test_images_are_dropped_independently_of_each_other():
    b, n = 9, 2000
    target = target_of(b)
    drop = Probabilistic(Constant(0.8))
    dropped = torch.stack([drop(target, step_at(i, n, b)).weight == 0 for i in range(n)]).double()
    correlation = dropped[:, target.rank > 1].T.corrcoef()
    assert (correlation - torch.eye(b - 1)).abs().max() <= 4.5 / math.sqrt(n)


@pytest.mark.parametrize("epoch", [1, 105, 210])
def test_probabilistic_filter_follows_the_papers_schedule(epoch):
    target, step = target_of(64), step_at(epoch - 1, batch=64)
    after = Probabilistic()(target, step)
    assert torch.equal(after.weight, Probabilistic(Constant(1 - 0.4 * epoch / 210))(target, step).weight)
    assert only_weight_changed(target, after)


def test_the_mask_is_a_function_of_seed_step_and_stream():
    target = target_of(64)

    def mask(stream="drop", step=3, seed=0):
        refine = Probabilistic(Constant(0.9), stream)
        return (refine(target, step_at(step, batch=64, seed=seed)).weight > 0).tolist()

    torch.rand(1)  # the global generator does not matter
    assert mask() == mask()
    assert mask() != mask(stream="drop 2")
    assert mask() != mask(step=4)
    assert mask() != mask(seed=1)


def test_filters_multiply_and_rank_stays_that_of_the_whole_batch():
    target, step = target_of(32), step_at(batch=32)
    hard, soft = TopK(Constant(16)), Probabilistic(Constant(0.9))
    both = soft(hard(target, step), step)
    kept = (hard(target, step).weight > 0) & (soft(target, step).weight > 0)
    assert torch.equal(both.weight, target.weight * kept)
    assert 0 < kept.sum() < 16
    assert only_weight_changed(target, both)


@given(st.integers(0, 2**32), st.floats(0.3, 1.0))
def test_threshold_keeps_confident_answers(seed, confidence):
    target = target_of(10, seed)
    after = Threshold(confidence)(target, step_at(batch=10))
    for i, logits in enumerate(target.logits.double().tolist()):
        p = max(math.exp(z) for z in logits) / sum(math.exp(z) for z in logits)
        if abs(p - confidence) > 1e-6:
            assert after.weight[i] == (target.weight[i] if p > confidence else 0)
    assert only_weight_changed(target, after)


def test_threshold_is_met_by_equality_and_needs_no_uncertainty():
    target = Target.plain(torch.zeros(2, 2))
    assert Threshold(0.5)(target, step_at()).weight.tolist() == [1.0, 1.0]
    assert Threshold(0.51)(target, step_at()).weight.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("refine", [TopK(Constant(3)), Probabilistic()])
def test_filters_by_rank_refuse_a_target_without_uncertainty(refine):
    with pytest.raises(ValueError, match="no uncertainty"):
        refine(replace(target_of(8), uncertainty=None), step_at())


@pytest.mark.parametrize("refine", [TopK(Constant(2)), Probabilistic(Constant(1.0)), Threshold(0.9)])
def test_filters_do_not_change_the_given_target(refine):
    target, untouched = target_of(8), target_of(8)
    assert not torch.equal(refine(target, step_at()).weight, target.weight)
    assert torch.equal(target.weight, untouched.weight)


# --- temperature ------------------------------------------------------------------------------------------------------


@given(ranks, st.floats(0, 10))
def test_temperature_is_the_papers_formula(rank, v_max):
    b = len(rank)
    expected = [(r / b) ** 2 * v_max + 1 for r in rank.tolist()]
    assert temperatures(rank, v_max).tolist() == pytest.approx(expected, rel=1e-6)


@given(ranks, st.floats(0.1, 10))
def test_less_certain_targets_have_a_higher_temperature_up_to_v_max_plus_1(rank, v_max):
    v = temperatures(rank, v_max)[rank.argsort()]
    assert (v.diff() > 0).all()
    assert v[0] > 1
    assert v[-1].item() == pytest.approx(v_max + 1, rel=1e-6)


@pytest.mark.parametrize(("epoch", "v_max"), [(1, 4 - 1 / 80), (80, 3.0), (160, 2.0), (210, 4 - 210 / 80)])
def test_temper_follows_the_papers_schedule(epoch, v_max):
    target = Target.plain(torch.zeros(8, 3), uncertainty=torch.arange(8.0).flip(0))
    after = Temper()(target, step_at(epoch - 1))
    expected = [(r / 8) ** 2 * v_max + 1 for r in range(8, 0, -1)]
    assert after.temperature.tolist() == pytest.approx(expected, rel=1e-6)


def test_temper_multiplies_temperatures_and_changes_nothing_else():
    target = target_of(8)
    before = target.temperature.clone()
    after = Temper(Constant(3.0))(target, step_at())
    assert torch.equal(after.temperature, before * temperatures(target.rank, 3.0))
    assert torch.equal(target.temperature, before)
    assert after.logits is target.logits
    assert after.weight is target.weight
    assert after.uncertainty is target.uncertainty


def test_temperature_ranks_are_those_before_filtering():
    target, step = target_of(8), step_at()
    keep, temper = TopK(Constant(3)), Temper()
    one, other = temper(keep(target, step), step), keep(temper(target, step), step)
    assert torch.equal(one.temperature, other.temperature)
    assert torch.equal(one.weight, other.weight)


# --- pseudo-labels ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("v", [1.0, 5.0, 11.0])
@given(seed=st.integers(0, 2**32), scale=st.sampled_from([0.0, 1.0, 1e4]))
def test_hardened_target_is_exactly_one_hot_at_any_temperature(v, seed, scale):
    logits = scale * normal(5, 4, seed=seed)
    hard = Harden()(Target.plain(logits), step_at())
    assert torch.equal((hard.logits / v).softmax(1), F.one_hot(logits.argmax(1), 4).float())


def test_harden_changes_the_logits_alone():
    target = target_of(8)
    before = target.logits.clone()
    hard = Harden()(target, step_at())
    assert torch.equal(target.logits, before)
    assert hard.weight is target.weight
    assert hard.temperature is target.temperature
    assert hard.uncertainty is target.uncertainty


@pytest.mark.parametrize("distance", [mse, kl, js, cross_entropy])
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_every_distance_to_a_hardened_target_is_finite(distance, scale):
    target = target_of(8)
    hard = Harden()(target, step_at())
    student = (scale * target.logits.flip(1)).requires_grad_()
    loss = distance(student, hard.logits, target.temperature)
    loss.sum().backward()
    assert torch.isfinite(loss).all()
    assert torch.isfinite(student.grad).all()


def test_hardened_target_has_no_entropy():
    hard = Harden()(target_of(8), step_at())
    assert entropy(hard.logits, hard.temperature).tolist() == [0.0] * 8
