"""The temperature of Temperature CCL against its formula, and pseudo-labels."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from certus.core.losses import cross_entropy, entropy, js, kl, mse
from certus.core.refinements import Harden, Temper, TopK, temperatures
from certus.core.schedules import Clock, Constant
from certus.core.step import Batch, Step
from certus.core.target import Target
from certus.views import Chain

ranks = st.integers(1, 12).flatmap(lambda b: st.permutations(range(1, b + 1))).map(torch.tensor)


def step_at(step=0, batch=8):
    images, labels = torch.zeros(batch, 1), torch.full((batch,), -1)
    return Step(Batch(images, labels, torch.arange(batch)), Clock(step, 210, batch), {"weak": Chain()}, 0)


def target_of(batch, seed=0):
    random = torch.Generator().manual_seed(seed)
    logits = torch.randn(batch, 4, generator=random)
    weight, temperature, uncertainty = torch.rand(3, batch, generator=random).add(0.5)
    return Target(logits, weight, temperature, uncertainty)


@given(ranks, st.floats(0, 10))
def test_temperature_is_the_papers_formula(rank, v_max):
    b = len(rank)
    expected = [(r / b) ** 2 * v_max + 1 for r in rank.tolist()]
    assert temperatures(rank, v_max).tolist() == pytest.approx(expected, rel=1e-6)


@given(ranks, st.floats(0.1, 10))
def test_less_certain_is_hotter_and_the_least_certain_has_v_max_plus_1(rank, v_max):
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


@pytest.mark.parametrize("v", [1.0, 5.0, 11.0])
@given(seed=st.integers(0, 2**32), scale=st.sampled_from([0.0, 1.0, 1e4]))
def test_hardened_target_is_exactly_one_hot_at_any_temperature(v, seed, scale):
    logits = scale * torch.randn(5, 4, generator=torch.Generator().manual_seed(seed))
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
