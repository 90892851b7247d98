"""The averaged teacher against the closed form of its recursion."""

from copy import deepcopy
from math import prod
from types import SimpleNamespace

import pytest
import torch
from builders import same_state
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from certus.core.schedules import Clock
from certus.networks.roles import role, set_role
from certus.teachers import EMA

STEPS = 12


def at(step, steps):
    """The only part of a step that it reads."""
    return SimpleNamespace(clock=Clock(step, steps))


class Net(nn.Module):
    """Parameters, a float buffer and integer buffers."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2, dtype=torch.float64)
        self.register_buffer("mean", torch.zeros(3, dtype=torch.float64))
        self.register_buffer("count", torch.tensor(0))
        self.register_buffer("mask", torch.tensor([True, False]))


def randomise(net, random):
    for tensor in [*net.parameters(), *net.buffers()]:
        if tensor.is_floating_point():
            tensor.data.copy_(torch.randn(tensor.shape, generator=random, dtype=tensor.dtype))
        else:
            tensor.data.copy_(torch.randint(0, 2, tensor.shape, generator=random))


def followed(decay, steps=STEPS, seed=0):
    """A teacher after this many steps, and all states of its student, from the initialisation on."""
    random = torch.Generator().manual_seed(seed)
    student = Net()
    randomise(student, random)
    ema, history = EMA(student, decay), [deepcopy(student.state_dict())]
    for step in range(steps):
        randomise(student, random)
        history.append(deepcopy(student.state_dict()))
        ema.follow(at(step, steps))
    return ema, history


@given(st.floats(0, 1), st.integers(0, STEPS), st.integers(0, 2**32))
def test_teacher_is_the_closed_form_of_its_recursion(decay, steps, seed):
    ema, history = followed(decay, steps, seed)
    alpha = [0.0] + [min(1 - 1 / (s + 1), decay) for s in range(1, steps + 1)]  # s = 0 is the initialisation
    weight = [(1 - alpha[s]) * prod(alpha[s + 1 :]) for s in range(steps + 1)]
    assert sum(weight) == pytest.approx(1)
    for name in ("linear.weight", "linear.bias", "mean"):
        expected = sum(w * state[name] for w, state in zip(weight, history, strict=True))
        assert torch.allclose(ema.net.state_dict()[name], expected, rtol=0, atol=1e-12)


def test_at_first_the_teacher_is_the_plain_mean_of_all_states_of_the_student():
    ema, history = followed(decay=0.99)
    expected = torch.stack([state["linear.weight"] for state in history]).mean(0)
    assert torch.allclose(ema.net.linear.weight, expected, rtol=0, atol=1e-12)


def test_decay_takes_over_after_the_start():
    student = nn.Linear(1, 1, bias=False)
    ema = EMA(student, 0.99)
    nn.init.zeros_(ema.net.weight)
    nn.init.ones_(student.weight)
    ema.follow(at(10_000, 20_000))
    assert ema.net.weight.item() == pytest.approx(0.01)


def test_integer_buffers_are_copied():
    ema, history = followed(decay=0.9)
    assert torch.equal(ema.net.count, history[-1]["count"])
    assert torch.equal(ema.net.mask, history[-1]["mask"])
    assert len({state["count"].item() for state in history}) == 2


def test_following_does_not_change_the_student():
    student = Net()
    ema = EMA(student)
    randomise(student, torch.Generator().manual_seed(0))
    before = deepcopy(student.state_dict())
    ema.follow(at(0, 10))
    assert same_state(student, before)


def test_the_student_is_not_part_of_the_teacher():
    student = Net()
    ema = EMA(student)
    assert ema.student is student
    assert ema.state_dict().keys() == {f"net.{name}" for name in student.state_dict()}
    assert [name for name, _ in ema.named_children()] == ["net"]


def test_teacher_starts_as_a_copy_that_shares_nothing_with_its_student():
    student = Net()
    ema = EMA(student)
    own, theirs = ema.net.state_dict(), student.state_dict()
    assert same_state(own, theirs)
    assert not {t.data_ptr() for t in own.values()} & {t.data_ptr() for t in theirs.values()}


def test_teacher_never_trains_and_its_student_still_does():
    student = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Dropout())
    ema = EMA(student)
    assert not any(m.training for m in ema.net.modules())
    assert not any(p.requires_grad for p in ema.net.parameters())
    assert all(m.training for m in student.modules())
    assert all(p.requires_grad for p in student.parameters())
    student(torch.randn(4, 2)).sum().backward()
    ema.follow(at(0, 10))
    assert not any(p.requires_grad for p in ema.net.parameters())


def test_a_teacher_restored_from_its_state_continues_bit_for_bit():
    ema, _ = followed(decay=0.9)
    again = EMA(ema.student, 0.9)
    again.load_state_dict(ema.state_dict())
    for step in range(STEPS, STEPS + 3):
        randomise(ema.student, torch.Generator().manual_seed(step))
        ema.follow(at(step, 20))
        again.follow(at(step, 20))
    assert same_state(again, ema)


@pytest.mark.parametrize(("student", "teacher"), [("student", "teacher"), ("student 2", "teacher 2")])
def test_the_role_of_a_teacher_follows_that_of_its_student(student, teacher):
    net = set_role(Net(), student)
    ema = EMA(net, 0.9)
    assert role(ema.net) == teacher
    assert role(net) == student
    assert repr(ema) == f"{teacher} = EMA({student}, 0.9)"
