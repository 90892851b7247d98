"""Neighbours on a teacher's graph: the term against loops over pairs, its degenerate cases, what a step of it does."""

from math import sqrt

import pytest
import torch
from builders import plain_run, same_state
from hypothesis import given
from hypothesis import strategies as st

from certus.core.schedules import ramp_up
from certus.methods.sntg import neighbour_loss

BASES = ("pi", "temporal-ensembling", "mean-teacher")
STRENGTH = {"weight": 4.0, "ramp": 20.0}  # presets give each base its own
every_base = pytest.mark.parametrize("base", BASES)


def run(method, options=None, data="moons", **settings):
    given = {"data": data, "labels": 10, "width": 8, "steps": 10}
    given |= {"labelled_batch": 6, "unlabelled_batch": 11}  # odd: one image has no pair
    return plain_run(method, STRENGTH | (options or {}), **given | settings)


def naive(left, right, same, margin):
    """One pair of feature vectors."""
    d2 = sum((a - b) ** 2 for a, b in zip(left, right, strict=True)) / len(left)
    return d2 if same else max(0.0, margin - sqrt(d2)) ** 2


@given(st.integers(0, 8), st.integers(1, 5), st.floats(0, 3), st.integers(0, 2**32))
def test_neighbour_loss_is_the_loop_over_pairs(pairs, size, margin, seed):
    random = torch.Generator().manual_seed(seed)
    left, right = torch.randn(2, pairs, size, generator=random, dtype=torch.float64)
    same = torch.rand(pairs, generator=random) < 0.5
    got = neighbour_loss(left, right, same, margin).tolist()
    expected = [naive(left[i].tolist(), right[i].tolist(), bool(same[i]), margin) for i in range(pairs)]
    assert got == pytest.approx(expected, abs=1e-5)


def test_images_that_coincide_have_a_finite_gradient():
    features = torch.ones(2, 4, requires_grad=True)
    for same in (True, False):
        neighbour_loss(features[:1], features[1:], torch.tensor([same])).sum().backward()
        assert torch.isfinite(features.grad).all()


@given(st.integers(0, 2**32), st.booleans())
def test_a_step_pulls_one_class_together_and_pushes_others_apart_up_to_the_margin(seed, same):
    random = torch.Generator().manual_seed(seed)
    pair = 0.3 * torch.randn(2, 1, 6, generator=random)  # well within the margin
    pair.requires_grad_()
    neighbour_loss(pair[0], pair[1], torch.tensor([same])).sum().backward()
    before = (pair[0] - pair[1]).norm()
    after = ((pair - 0.05 * pair.grad)[0] - (pair - 0.05 * pair.grad)[1]).norm()
    assert (after < before) if same else (after > before)


def test_beyond_the_margin_nothing_is_pushed():
    pair = torch.tensor([[[0.0, 0.0]], [[2.0, 2.0]]], requires_grad=True)
    loss = neighbour_loss(pair[0], pair[1], torch.tensor([False]), margin=1.5)
    loss.sum().backward()
    assert loss == 0
    assert (pair.grad == 0).all()


def expected_term(training, number, margin):
    """The pairs one by one, from the answers of student and teacher in this step."""
    step = training.step(number)
    losses = training.method.losses(step)
    term, teacher = training.method.terms["neighbours"], training.method.terms["consistency"].source(step)
    features = step.features(term.student, "a").tolist()
    classes, trusted = [], []
    for i, label in enumerate(step.batch.labels.tolist()):
        classes.append(label if label >= 0 else int(teacher.logits[i].argmax()))
        trusted.append(label >= 0 or float(teacher.weight[i]) > 0)
    order = torch.randperm(len(classes), generator=step.generator("pairs a")).tolist()
    half = len(order) // 2
    total = 0.0
    for i, j in zip(order[:half], order[half : 2 * half], strict=True):
        if trusted[i] and trusted[j]:
            total += naive(features[i], features[j], classes[i] == classes[j], margin)
    return losses["neighbours"].item(), total / half, classes, trusted


@every_base
@pytest.mark.parametrize("data", ["moons", "digits"])
def test_the_term_is_the_mean_over_the_pairs_of_the_batch(base, data):
    """With the base's own ramp, times k, and times C since the base sums over the classes."""
    sizes = {"width": 2} if data == "digits" else {}
    sizes |= {"unlabelled_batch": 401} if base == "temporal-ensembling" else {}  # so that images come back
    training = run(f"{base}-sntg", {"graph": 0.4, "margin": 0.7}, data, **sizes)
    seen = []
    for number in range(6):
        got, mean, classes, trusted = expected_term(training, number, 0.7)
        weight = 0.4 * 4.0 * len(training.data.classes) * ramp_up(training.step(number).clock.epoch, 20.0)
        assert got == pytest.approx(weight * mean, rel=1e-4, abs=1e-7)
        seen += trusted
        training.advance(number)
    assert mean > 0
    assert len(set(classes)) > 1
    assert any(trusted[6:])
    assert (False in seen) == (base == "temporal-ensembling")  # it does not know an image before its second visit


@every_base
def test_the_class_of_a_labelled_image_is_its_label_even_if_the_teacher_disagrees(base):
    training = run(f"{base}-sntg")
    for number in range(3):
        training.advance(number)
    *_, classes, _ = expected_term(training, 3, 1.0)
    step = training.step(3)
    answers = training.method.terms["consistency"].source(step).logits.argmax(1)
    labelled = step.batch.labels >= 0
    assert classes[: int(labelled.sum())] == step.batch.labels[labelled].tolist()
    assert (answers[labelled] != step.batch.labels[labelled]).any()  # so that the test can tell the difference


@every_base
@pytest.mark.parametrize("data", ["moons", "digits"])
def test_without_its_weight_it_is_the_base_to_the_bit(base, data):
    narrow = {"width": 2} if data == "digits" else {}
    base_run, none, some = (
        run(base, {}, data, **narrow),
        *(run(f"{base}-sntg", {"graph": k}, data, **narrow) for k in (0.0, 1.0)),
    )
    for number in range(6):
        for training in (base_run, none, some):
            training.advance(number)
    (a,), (b,), (c,) = (training.method.students for training in (base_run, none, some))
    assert same_state(a, b)
    assert not same_state(a, c)


def test_a_circle_has_neighbours_for_every_student():
    training = run("mean-teacher-sntg", {"teachers": 2})
    terms = training.method.terms
    assert {"neighbours 1", "neighbours 2"} <= terms.keys()
    for i, student in enumerate(training.method.students, start=1):
        assert terms[f"neighbours {i}"].student is student
        assert terms[f"neighbours {i}"].source is terms[f"consistency {i}"].source
