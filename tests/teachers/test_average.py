"""fastSWA: the average against the plain mean of recorded weights, its statistics against loops, its learning rate."""

from copy import deepcopy
from functools import partial
from math import ceil, cos, pi

import pytest
import torch
from builders import plain_run, same_state
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from certus.config import resolve
from certus.core.schedules import cosine
from certus.methods.fastswa import cyclical
from certus.networks.roles import role, set_role
from certus.teachers import Average, average

STRENGTH = {"weight": 5.0, "ramp": 40.0}  # presets give mean teacher its own
MOONS = {"data": "moons", "labels": 6, "width": 8, "labelled_batch": 6, "unlabelled_batch": 120}
DIGITS = {"data": "digits", "labels": 10, "width": 2, "labelled_batch": 5, "unlabelled_batch": 200}
every_data = pytest.mark.parametrize("data", [MOONS, DIGITS], ids=["vectors", "images"])
STEPS = 28  # e = 7.5 (step + 1), rounded up


def run(method="mean-teacher-fastswa", data=MOONS, **options):
    return plain_run(method, STRENGTH | options, steps=STEPS, clock=210, **data)


def weights(net):
    return [p.detach().clone() for p in net.parameters()]


def due(start, every):
    """The steps after which the weights are averaged, from the definition."""
    steps, wanted = [], start
    for step in range(STEPS):
        if ceil(210 * (step + 1) / STEPS) >= wanted:
            steps.append(step)
            wanted += every
    return steps


# --- the mean of the weights ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "turn", "cycle", "every"),
    [
        (MOONS, 180.0, 30.0, 3.0),  # the authors'
        (MOONS, 120.0, 60.0, 20.0),
        (MOONS, 60.0, 90.0, 16.0),  # from the start
        (MOONS, 210.0, 1.0, 1.0),  # once
        (DIGITS, 160.0, 60.0, 16.0),
    ],
)
def test_it_is_the_plain_mean_of_the_students_weights_at_the_averaging_epochs(data, turn, cycle, every, monkeypatch):
    monkeypatch.setattr(average, "STATISTICS_IMAGES", 100)  # only the weights matter here
    training = run(data=data, turn=turn, cycle=cycle, every=every)
    (student,), mean = training.method.students, training.method.followers[-1]
    history = []
    for number in range(STEPS):
        training.advance(number)
        history.append(weights(student))
        taken = [history[step] for step in due(max(turn - cycle, 0), every) if step <= number]
        assert int(mean.count) == len(taken)
        if taken:
            for got, *past in zip(weights(mean.net), *taken, strict=True):
                assert torch.allclose(got, torch.stack(past).mean(0), rtol=0, atol=1e-5)
    assert taken
    assert training.method.answers == (mean.net,)


def test_averaging_once_is_the_student_of_mean_teacher_at_that_moment():
    """Before the cycles start, the learning rate is that of Mean Teacher, and the average teaches no student."""
    once = run(turn=200.0, cycle=50.0, every=1000.0)
    base = run("mean-teacher")
    for number in range(STEPS):
        once.advance(number)
    for number in range(due(150.0, 1000.0)[0] + 1):
        base.advance(number)
    (student,) = base.method.students
    assert all(torch.equal(a, b) for a, b in zip(weights(once.method.answers[0]), weights(student), strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(weights(once.method.students[0]), weights(student), strict=True))


@every_data
def test_before_the_first_average_it_is_the_student_at_the_end_of_the_last_pass(data):
    training = run(data=data, turn=210.0, cycle=30.0)
    (student,), mean = training.method.students, training.method.followers[-1]
    last = {name: t.clone() for name, t in student.state_dict().items()}
    passes = 0
    for number in range(due(180.0, 3.0)[0]):
        training.advance(number)
        if (number + 1) % training.batches.per_epoch == 0:
            last = {name: t.clone() for name, t in student.state_dict().items()}
            passes += 1
        assert same_state(mean.net, last)
    assert passes >= 2
    assert training.batches.per_epoch > 1


def test_a_run_that_ends_before_any_average_answers_with_its_last_student():
    training = run(turn=210.0, cycle=1.0)
    mean = training.method.followers[-1]
    mean.start = 1000.0
    for number in range(STEPS):
        training.advance(number)
    assert STEPS % training.batches.per_epoch
    (student,) = training.method.students
    assert all(torch.equal(a, b) for a, b in zip(weights(mean.net), weights(student), strict=True))


def test_the_student_is_not_part_of_it():
    training = run()
    (student,), mean = training.method.students, training.method.followers[-1]
    assert mean.student is student
    assert mean.state_dict().keys() == {"count", *(f"net.{name}" for name in student.state_dict())}
    assert not any(p.requires_grad for p in mean.net.parameters())
    net = set_role(nn.Linear(2, 2), "student 2")
    assert role(Average(net, None, 0, 1).net) == "average 2"


# --- statistics -------------------------------------------------------------------------------------------------------


def naive_statistics(mean, step, context, images=average.STATISTICS_IMAGES):
    """Mean over batches of each layer's batch mean and (unbiased) variance, read by hooks."""
    net = deepcopy(mean.net).train()
    norms = {name: m for name, m in net.named_modules() if isinstance(m, _BatchNorm)}
    seen = {name: [] for name in norms}
    for name, norm in norms.items():
        norm.register_forward_pre_hook(lambda _, given, name=name: seen[name].append(given[0].detach().double()))
    views = step.generator(f"statistics of {role(mean.net)}")
    order = torch.randperm(len(context.pool), generator=step.generator("order of statistics"))[:images]
    step.seed_dropout("statistics", mean.net)
    size = len(step.batch)
    for start in range(0, len(order), size):
        indices = context.pool[order[start : start + size]]
        if len(indices) > 1:
            net(context.weak(context.normalised(context.images[indices]), views))
    result = {}
    for name, batches in seen.items():
        flat = [batch.transpose(0, 1).flatten(1) for batch in batches]  # (C, B·H·W)
        result[f"{name}.running_mean"] = sum(x.mean(1) for x in flat) / len(flat)
        result[f"{name}.running_var"] = sum(x.var(1, correction=1) for x in flat) / len(flat)
    return result, len(batches)


@pytest.mark.parametrize("images", [average.STATISTICS_IMAGES, 300])
def test_statistics_are_the_plain_mean_over_batches_of_augmented_images(images, monkeypatch):
    monkeypatch.setattr(average, "STATISTICS_IMAGES", images)
    training = run(data=DIGITS, turn=120.0, cycle=60.0, every=20.0)
    (student,), mean = training.method.students, training.method.followers[-1]
    checked = 0
    for number in range(STEPS):
        training.advance(number)
        if int(mean.count) and training.clock(number).ends_pass:
            checked += 1
            expected, batches = naive_statistics(mean, training.step(number), mean.context, images)
            assert batches == ceil(min(images, len(training.data.train)) / 205)
            got = mean.net.state_dict()
            for name, value in expected.items():
                assert torch.allclose(got[name].double(), value, rtol=1e-4, atol=1e-5), name
                assert not torch.allclose(got[name].double(), student.state_dict()[name].double(), rtol=1e-3), name
    assert checked >= 2  # passes that end after the first average
    assert not any(m.training for m in mean.net.modules())
    assert {m.momentum for m in mean.net.modules() if isinstance(m, _BatchNorm)} == {0.1}


def test_computing_statistics_changes_neither_the_student_nor_the_weights():
    training = run(data=DIGITS, turn=120.0, cycle=60.0)
    for number in range(10):
        training.advance(number)
    (student,), mean = training.method.students, training.method.followers[-1]
    before, averaged = deepcopy(student.state_dict()), weights(mean.net)
    mean.compute_statistics(training.step(10))
    assert same_state(student, before)
    assert all(torch.equal(a, b) for a, b in zip(weights(mean.net), averaged, strict=True))
    assert all(m.training for m in student.modules())


def test_averaging_does_not_change_the_student(monkeypatch):
    monkeypatch.setattr(average, "STATISTICS_IMAGES", 100)
    often, never = run(data=DIGITS, turn=120.0, cycle=60.0, every=1.0), run(data=DIGITS, turn=120.0, cycle=60.0)
    never.method.followers[-1].start = 1000.0
    for number in range(14):
        often.advance(number)
        never.advance(number)
    assert int(often.method.followers[-1].count) > 3
    assert same_state(often.method.students[0], never.method.students[0])


# --- the learning rate ------------------------------------------------------------------------------------------------


@given(st.floats(0, 210), st.floats(1, 210), st.floats(210, 400), st.floats(1, 210))
def test_before_the_turn_the_pace_is_the_cosine(e, turn, fall, cycle):
    if e < turn:
        assert cyclical(e, turn, fall, cycle) == pytest.approx(0.5 * (1 + cos(pi * e / fall)), abs=1e-9)


@given(st.floats(0.01, 29.99), st.integers(0, 5), st.floats(60, 180))
def test_from_the_turn_on_its_last_cycle_repeats(inside, cycles, turn):
    got = cyclical(turn + 30 * cycles + inside, turn, 210.0, 30.0)
    assert got == pytest.approx(cosine((turn - 30 + inside) / 210), abs=1e-9)


def test_the_authors_pace():
    """Athiwaratkun et al. 2019 on CIFAR-10: ℓ = 180, ℓ₀ = 210, then 34 cycles of 30 epochs."""
    pace = partial(cyclical, turn=180.0, fall=210.0, cycle=30.0)
    assert pace(0.0) == 1
    assert pace(150) == pytest.approx(0.188, abs=1e-3)
    for cycle in range(34):
        assert pace(180 + 30 * cycle) == pytest.approx(0.188, abs=1e-3)
        assert pace(180 + 30 * cycle + 29.999) == pytest.approx(0.0495, abs=1e-3)


@pytest.mark.parametrize(("data", "cycles"), [("cifar10", 34), ("cifar100", 20)])
def test_their_number_of_cycles_is_the_authors(data, cycles):
    config = resolve({"data": data, "method": "mean-teacher-fastswa", "network": "cnn13"})
    assert (config.clock - config.options["turn"]) / config.options["cycle"] == cycles


def test_a_rate_that_has_fallen_to_0_stays_there():
    assert cyclical(250.0, 300.0, 210.0, 30.0) == 0


def test_a_cycle_longer_than_all_before_it_starts_from_the_beginning():
    assert cyclical(60, 60.0, 210.0, 90.0) == 1
    assert cyclical(120, 60.0, 210.0, 90.0) == pytest.approx(cosine(60 / 210))


def test_the_run_learns_at_this_pace():
    training = run(turn=120.0, cycle=60.0)
    for number in range(STEPS):
        e = 210 * number / STEPS
        expected = cosine((e if e < 120 else 60 + (e - 120) % 60) / 210)
        assert training.rate(number) == pytest.approx(training.config.learning_rate * expected)
