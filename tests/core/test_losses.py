"""Each distance against its definition in loops, its gradient against finite differences."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch.nn import functional as F

from certus.core.losses import cross_entropy, entropy, js, kl, mse, tempered

DISTANCES = [mse, kl, js, cross_entropy]
EPS = 1e-7


@st.composite
def pairs(draw, high=15):
    """Student and target logits (B, C) and temperatures (B,)."""
    b, c = draw(st.integers(1, 4)), draw(st.integers(2, 5))
    logits = hnp.arrays(np.float64, (b, c), elements=st.floats(-high, high))
    v = hnp.arrays(np.float64, (b,), elements=st.floats(0.5, 5))
    return torch.from_numpy(draw(logits)), torch.from_numpy(draw(logits)), torch.from_numpy(draw(v))


def softmax(logits, v):
    e = [math.exp(z / v) for z in logits]
    return [x / sum(e) for x in e]


def divergence(q, p):
    return sum(a * math.log(a / b) for a, b in zip(q, p, strict=True))


def middle(p, q):
    return [(a + b) / 2 for a, b in zip(p, q, strict=True)]


DEFINITIONS = {  # p the student's answer, q the target's
    mse: lambda p, q: sum((a - b) ** 2 for a, b in zip(p, q, strict=True)),
    kl: lambda p, q: divergence(q, p),
    js: lambda p, q: (divergence(p, middle(p, q)) + divergence(q, middle(p, q))) / 2,
    cross_entropy: lambda p, q: -sum(b * math.log(a) for a, b in zip(p, q, strict=True)),
}


@pytest.mark.parametrize("distance", DISTANCES)
@given(pair=pairs())
def test_distance_equals_its_definition(distance, pair):
    expected = [
        DEFINITIONS[distance](softmax(s, v), softmax(t, v)) for s, t, v in zip(*(x.tolist() for x in pair), strict=True)
    ]
    assert distance(*pair).tolist() == pytest.approx(expected, abs=EPS)


@given(pairs())
def test_entropy_equals_its_definition(pair):
    logits, _, v = pair
    expected = [-sum(x * math.log(x) for x in softmax(z, t)) for z, t in zip(logits.tolist(), v.tolist(), strict=True)]
    assert entropy(logits, v).tolist() == pytest.approx(expected, abs=EPS)


PLAIN = {
    mse: lambda s, t: F.mse_loss(s.softmax(1), t.softmax(1), reduction="none").sum(1),
    kl: lambda s, t: F.kl_div(s.log_softmax(1), t.softmax(1), reduction="none").sum(1),
    cross_entropy: lambda s, t: F.cross_entropy(s, t.softmax(1), reduction="none"),
}


@pytest.mark.parametrize("distance", PLAIN)
@given(pair=pairs())
def test_temperature_1_is_the_plain_distance(distance, pair):
    student, target, v = pair
    assert torch.allclose(distance(student, target, torch.ones_like(v)), PLAIN[distance](student, target), atol=EPS)


@pytest.mark.parametrize("distance", DISTANCES)
@given(pair=pairs())
def test_temperature_divides_student_and_target_alike(distance, pair):
    student, target, v = pair
    cooled = distance(student / v[:, None], target / v[:, None], torch.ones_like(v))
    assert torch.allclose(distance(student, target, v), cooled, atol=EPS)


def test_each_image_is_divided_by_its_own_temperature():
    assert tempered(torch.tensor([[2.0, 4.0], [2.0, 4.0]]), torch.tensor([1.0, 2.0])).tolist() == [[2, 4], [1, 2]]


@pytest.mark.parametrize("distance", DISTANCES)
def test_no_gradient_enters_the_target(distance):
    student, target = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(0)).unbind()
    student.requires_grad_()
    target.requires_grad_()
    distance(student, target, torch.ones(4)).sum().backward()
    assert target.grad is None
    assert student.grad.abs().sum() > 0


@pytest.mark.parametrize("distance", DISTANCES)
@given(pair=pairs(high=3))
def test_gradient_into_the_student_equals_finite_differences(distance, pair):
    student, target, v = pair
    assert torch.autograd.gradcheck(lambda s: distance(s, target, v), student.requires_grad_())


@given(pairs(high=3))
def test_gradient_of_entropy_equals_finite_differences(pair):
    logits, _, v = pair
    assert torch.autograd.gradcheck(lambda z: entropy(z, v), logits.requires_grad_())


@given(pairs())
def test_distances_stay_within_their_bounds(pair):
    student, target, v = pair
    c = student.shape[1]
    assert ((mse(*pair) >= 0) & (mse(*pair) <= 2)).all()
    assert (kl(*pair) >= -EPS).all()
    assert ((js(*pair) >= -EPS) & (js(*pair) <= math.log(2) + EPS)).all()
    assert ((entropy(student, v) >= -EPS) & (entropy(student, v) <= math.log(c) + EPS)).all()
    assert torch.allclose(cross_entropy(*pair), kl(*pair) + entropy(target, v), atol=EPS)


@pytest.mark.parametrize("distance", [mse, js])
@given(pair=pairs())
def test_mse_and_js_are_symmetric(distance, pair):
    student, target, v = pair
    assert torch.allclose(distance(student, target, v), distance(target, student, v), atol=EPS)


@pytest.mark.parametrize("distance", [mse, kl, js])
@given(pair=pairs(), shift=st.floats(-10, 10))
def test_distance_to_the_same_answer_is_0(distance, pair, shift):
    logits, _, v = pair
    assert torch.allclose(distance(logits, logits + shift, v), torch.zeros_like(v), atol=EPS)


def test_js_of_contradicting_answers_is_log_2():
    student, target = torch.tensor([[1e4, -1e4]]), torch.tensor([[-1e4, 1e4]])
    assert js(student, target, torch.ones(1)).item() == pytest.approx(math.log(2))


@pytest.mark.parametrize("distance", [*DISTANCES, lambda s, t, v: entropy(s, v)])  # noqa: ARG005 (one signature)
@given(signs=hnp.arrays(np.float32, (2, 6, 3), elements=st.sampled_from([-1e4, 0, 1e4])))
def test_saturated_logits_have_finite_distances_and_gradients(distance, signs):
    student, target = torch.from_numpy(signs).unbind()
    student = student.clone().requires_grad_()
    loss = distance(student, target, torch.tensor([1.0, 1, 1, 1, 2, 5]))
    loss.sum().backward()
    assert torch.isfinite(loss).all()
    assert torch.isfinite(student.grad).all()
