"""FixMatch, pseudo-labels and entropy against loops and against each other; the views of CCL's students."""

from copy import deepcopy
from math import log
from types import SimpleNamespace

import pytest
import torch
from builders import normal, plain_run, same_state
from hypothesis import given
from hypothesis import strategies as st

from certus.core.refinements import Harden, Threshold
from certus.core.schedules import ramp_up
from certus.core.student import Adversarial, See
from certus.core.target import Target

MOONS = {"data": "moons", "labels": 6, "width": 8, "labelled_batch": 6, "unlabelled_batch": 20}
DIGITS = {"data": "digits", "labels": 10, "width": 4, "labelled_batch": 10, "unlabelled_batch": 20}
every_data = pytest.mark.parametrize("data", [MOONS, DIGITS], ids=["vectors", "images"])


def run(method, options=None, data=DIGITS, steps=0, **settings):
    """After this many of twelve steps."""
    return plain_run(method, options, trained=steps, **{"steps": 12, **data, **settings})


def close(a, b, atol):
    return all(torch.allclose(x, y, rtol=0, atol=atol) for x, y in zip(a.parameters(), b.parameters(), strict=True))


# --- FixMatch ---------------------------------------------------------------------------------------------------------


@every_data
def test_with_the_weak_view_and_no_threshold_it_is_pseudo_label_to_the_bit(data):
    same = {"threshold": 0.0, "ramp": 0.0, "weight": 0.8}
    weak = run("fixmatch", same | {"student_view": "weak"}, data, steps=5)
    pseudo = run("pseudo-label", same, data, steps=5)
    strong = run("fixmatch", same, data, steps=5)
    (a,), (b,), (c,) = (training.method.students for training in (weak, pseudo, strong))
    assert same_state(a, b)
    assert not same_state(a, c)


@pytest.mark.parametrize(("data", "threshold"), [(MOONS, 0.0), (MOONS, 0.65), (DIGITS, 0.0), (DIGITS, 0.2)])
@pytest.mark.parametrize("view", ["strong", "weak"])
def test_the_term_is_the_loop_over_images(data, threshold, view):
    training = run("fixmatch", {"threshold": threshold, "student_view": view, "weight": 0.6}, data, steps=4)
    step, (student,) = training.step(4), training.method.students
    loss = training.method.losses(step)["pseudo"].item()
    if view == "strong":
        weak, learned = step.stochastic_answer(student, "b"), step.learn(student, "a", "mixed")
    else:
        weak = learned = step.learn(student, "a")
    weak, learned = (logits.detach().double().softmax(1).tolist() for logits in (weak, learned))
    total, kept = 0.0, 0
    for p, q in zip(weak, learned, strict=True):
        if max(p) >= threshold:
            kept += 1
            total -= log(q[p.index(max(p))])
    assert loss == pytest.approx(0.6 * total / len(weak), rel=1e-4, abs=1e-9)
    assert 0 < kept <= len(weak)
    assert (kept == len(weak)) == (threshold == 0)


@given(st.floats(0, 1), st.lists(st.floats(0.5, 1), min_size=1, max_size=8))
def test_the_mask_keeps_the_answers_that_reach_the_threshold(threshold, confident):
    p = torch.tensor(confident, dtype=torch.float64)
    target = Target.plain(torch.stack([p, 1 - p], dim=1).clamp(min=1e-300).log())
    reached = target.logits.softmax(1).amax(1)
    got = Threshold(threshold)(target, SimpleNamespace()).weight
    assert got.tolist() == [float(value >= threshold) for value in reached.tolist()]
    exactly = Threshold(reached[0].item())(target, SimpleNamespace()).weight
    assert exactly[0] == 1  # ≥, not >


@given(st.integers(0, 2**32), st.integers(1, 6))
def test_a_hard_label_is_certain_of_the_most_likely_class(seed, count):
    logits = normal(count, 4, seed=seed)
    hard = Harden()(Target.plain(logits), SimpleNamespace()).logits.softmax(1)
    for given_, got in zip(logits.tolist(), hard.tolist(), strict=True):
        assert got == [float(c == given_.index(max(given_))) for c in range(4)]


def test_statistics_come_from_the_views_that_learn():
    training = run("fixmatch", {"threshold": 0.0}, steps=2)
    (student,) = training.method.students
    alone = deepcopy(student)
    step = training.step(2)
    training.method.losses(step)
    See(alone, "a", "mixed")(training.step(2))
    assert not torch.equal(step.view("a", "mixed"), step.view("a"))
    moved, expected = dict(student.named_buffers()), dict(alone.named_buffers())
    assert moved
    assert all(torch.equal(moved[name], expected[name]) for name in moved)


def test_gradient_comes_through_the_strong_view_alone():
    training = run("fixmatch", {"threshold": 0.0}, steps=2)
    step, (student,) = training.step(2), training.method.students
    weak, strong = step.stochastic_answer(student, "b"), step.learn(student, "a", "mixed")
    strong.retain_grad()
    training.method.terms["pseudo"](step).backward()
    assert not weak.requires_grad
    assert strong.grad.abs().max() > 0


def test_labels_and_pseudo_labels_are_learnt_in_one_forward():
    training = run("fixmatch", {"threshold": 0.0}, steps=2)
    (student,) = training.method.students
    seen = []
    student.register_forward_hook(lambda *_: seen.append(torch.is_grad_enabled()))
    training.method.losses(training.step(2))
    assert sorted(seen) == [False, True]


def test_a_threshold_that_no_answer_reaches_leaves_only_the_labels():
    nothing = run("fixmatch", {"threshold": 1.0}, steps=0)
    losses = [nothing.advance(number)["pseudo"].item() for number in range(3)]
    assert losses == [0, 0, 0]
    unweighted = run("fixmatch", {"threshold": 0.0, "weight": 0.0}, steps=3)
    assert close(nothing.method.students[0], unweighted.method.students[0], 1e-7)


def test_the_moving_average_answers_and_does_not_teach():
    slow, quick = (run("fixmatch", {"threshold": 0.0, "decay": decay}, steps=4) for decay in (0.999, 0.1))
    assert same_state(slow.method.students[0], quick.method.students[0])
    assert not same_state(slow.method.answers[0], quick.method.answers[0])


# --- pseudo-label and entropy -----------------------------------------------------------------------------------------


def test_pseudo_label_has_a_threshold_and_a_ramp():
    training = run("pseudo-label", {"threshold": 0.65, "ramp": 200.0, "weight": 2.0}, MOONS, steps=3)
    step, (student,) = training.step(3), training.method.students
    loss = training.method.losses(step)["pseudo"].item()
    p = step.learn(student, "a").detach().double().softmax(1).tolist()
    kept = [max(row) for row in p if max(row) >= 0.65]
    assert 0 < len(kept) < len(p)
    ramp = ramp_up(step.clock.epoch, 200.0)
    assert 0 < ramp < 1
    assert loss == pytest.approx(2.0 * ramp * -sum(map(log, kept)) / len(p), rel=1e-4)


@every_data
def test_entropy_is_the_mean_over_images_of_the_clean_answers(data):
    training = run("entropy-minimisation", {"weight": 0.7, "ramp": 100.0}, data, steps=3)
    step, (student,) = training.step(3), training.method.students
    loss = training.method.losses(step)["entropy"]
    logits = step.learn(student, "a")
    p = logits.detach().double().softmax(1).tolist()
    naive = sum(-sum(q * log(q) for q in row) for row in p) / len(p)
    assert loss.item() == pytest.approx(0.7 * ramp_up(step.clock.epoch, 100.0) * naive, rel=1e-4)
    (gradient,) = torch.autograd.grad(loss, logits)
    surer = (logits - gradient * len(p)).detach().double().softmax(1).tolist()
    assert sum(-sum(q * log(q) for q in row) for row in surer) / len(p) < naive  # through both factors


# --- the student's view in mean teachers ------------------------------------------------------------------------------

CCL = {"weight": 5.0, "ramp": 20.0}


@every_data
def test_a_strong_student_reads_labelled_images_weak_and_the_others_strong_in_one_forward(data):
    training = run("ft-ccl", CCL | {"student_view": "strong"}, data, steps=3)
    step, (student,) = training.step(3), training.method.students
    term = training.method.terms["consistency"]
    loss = term(step).item()
    target = term.target(step)
    strong = step.learn(student, "a", "mixed").detach()
    assert torch.equal(term.read(step), strong)
    assert training.method.terms["supervised"].read(step) is step.learn(student, "a", "mixed")
    assert not step.done(("learn", id(student), "a", "weak"))
    assert not torch.equal(strong, step.learn(student, "a"))
    total = 0.0
    for i in range(len(step.batch)):
        heat = float(target.temperature[i])
        p, q = ((logits[i].double() / heat).softmax(0).tolist() for logits in (strong, target.logits))
        total += float(target.weight[i]) * sum((a - b) ** 2 for a, b in zip(p, q, strict=True))
    weight = 5.0 * ramp_up(step.clock.epoch, 20.0)
    assert total > 0
    assert loss == pytest.approx(weight * total / len(step.batch), rel=1e-3)


@every_data
@pytest.mark.parametrize("metric", ["pv", "confidence"])
def test_certainty_is_that_of_weak_views_for_every_student_view(data, metric):
    weak = run("ft-ccl", CCL | {"metric": metric}, data, steps=3)
    others = [run("ft-ccl", CCL | {"metric": metric, "student_view": view}, data) for view in ("strong", "adversarial")]
    expected = weak.method.terms["consistency"].target(weak.step(3))
    for other in others:
        other.method.state.load_state_dict(weak.method.state.state_dict())
        got = other.method.terms["consistency"].target(other.step(3))
        assert torch.equal(got.rank, expected.rank)
        for name in ("measured", "rank", "logits", "weight", "temperature"):
            assert torch.equal(getattr(got, name), getattr(expected, name)), name


@every_data
def test_an_adversarial_student_at_epsilon_zero_is_the_weak_one_up_to_rounding(data):
    weak = run("ft-ccl", CCL, data, steps=5)
    still = run("ft-ccl", CCL | {"student_view": "adversarial", "epsilon": 0.0}, data, steps=5)
    moved = run("ft-ccl", CCL | {"student_view": "adversarial", "epsilon": 3.0}, data, steps=5)
    (a,), (b,), (c,) = (training.method.students for training in (weak, still, moved))
    assert close(a, b, 1e-4)
    assert not close(a, c, 1e-4)


def test_an_adversarial_student_perturbs_its_own_view_by_epsilon():
    training = run("filtering-ccl", CCL | {"student_view": "adversarial", "epsilon": 2.0}, steps=2)
    step, (student,) = training.step(2), training.method.students
    read = training.method.terms["consistency"].read
    assert isinstance(read, Adversarial)
    assert read.student is student
    size = (read.perturbed(step) - step.view("a")).flatten(1).norm(dim=1)
    assert torch.allclose(size, torch.full_like(size, 2.0), rtol=1e-3)


@pytest.mark.parametrize(("view", "kind"), [("strong", "mixed"), ("adversarial", "weak")])
def test_statistics_of_a_circle_come_from_the_views_of_its_labels(view, kind):
    training = run("temperature-ccl", CCL | {"student_view": view, "teachers": 2}, steps=2)
    alone = deepcopy(training.method.students)
    training.method.losses(training.step(2))
    for i, (student, copy) in enumerate(zip(training.method.students, alone, strict=True), start=1):
        See(copy, f"a {i}", kind)(training.step(2))
        assert all(torch.equal(a, b) for a, b in zip(student.buffers(), copy.buffers(), strict=True))


@pytest.mark.parametrize("view", ["strong", "adversarial"])
def test_ccl_that_keeps_every_target_is_mean_teacher_on_every_view_to_the_bit(view):
    off = {"hard": False, "probabilistic": False, "temper": False}
    filtered, every = (run("ft-ccl", CCL | {"student_view": view} | o, steps=5).method.state for o in ({}, off))
    mean, weak = (run("mean-teacher", CCL | {"student_view": v}, steps=5).method.state for v in (view, "weak"))
    assert same_state(every, mean)
    assert not same_state(filtered, mean)
    assert not same_state(weak, mean)


@pytest.mark.parametrize("view", ["strong", "adversarial"])
@pytest.mark.parametrize(("on", "term"), [("sntg", "neighbours"), ("label-propagation", "propagated")])
def test_extra_terms_on_mean_teacher_stay_for_every_student_view(on, term, view):
    name = f"mean-teacher-{on}"
    found = [set(run(name, CCL | {"student_view": v}, steps=1).method.terms) for v in ("weak", view)]
    assert found[0] == found[1] == {"supervised", "consistency", term}
