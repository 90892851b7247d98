"""The memory of the classes against loops, and what changes it."""

from math import exp, log

import pytest
import torch
from builders import HeadOnly, normal, plain_run, step_of
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from certus.errors import UsageError
from certus.methods.ma_dnn import memory_loss
from certus.teachers import ClassMemory
from certus.teachers.memory import attend, updated

CLASSES, SIZE = 3, 4
SEED = st.integers(0, 2**32)


def doubles(seed, *shape):
    return normal(*shape, seed=seed, dtype=torch.float64)


@given(st.lists(st.integers(0, CLASSES - 1), max_size=8), st.floats(0, 1), SEED)
def test_updated_is_the_loop_over_classes_and_images(labels, rate, seed):
    old, seen = doubles(seed, CLASSES, SIZE), doubles(seed + 1, len(labels), SIZE)
    got = updated(old, seen, torch.tensor(labels, dtype=torch.int64), rate)
    for c in range(CLASSES):
        own = [i for i, label in enumerate(labels) if label == c]
        for d in range(SIZE):
            pull = sum(float(old[c, d] - seen[i, d]) for i in own)
            assert got[c, d].item() == pytest.approx(float(old[c, d]) - rate * pull / (1 + len(own)), abs=1e-9)


@given(st.integers(0, 6), SEED)
def test_attend_is_a_softmax_over_city_block_distances(count, seed):
    features, keys = doubles(seed, count, SIZE), doubles(seed + 1, CLASSES, SIZE)
    values = doubles(seed + 2, CLASSES, CLASSES).softmax(1)
    got = attend(features, keys, values)
    assert torch.allclose(got.sum(1), torch.ones(count, dtype=torch.float64))
    for i in range(count):
        near = [exp(-sum(abs(float(features[i, d] - keys[c, d])) for d in range(SIZE))) for c in range(CLASSES)]
        for c in range(CLASSES):
            expected = sum(near[k] / sum(near) * float(values[k, c]) for k in range(CLASSES))
            assert got[i, c].item() == pytest.approx(expected, abs=1e-9)


@given(st.integers(1, 6), SEED)
def test_memory_loss_is_the_loop_over_images(count, seed):
    logits, remembered = doubles(seed, count, CLASSES), doubles(seed + 1, count, CLASSES).softmax(1)
    got, p = memory_loss(logits, remembered), logits.softmax(1)
    for i in range(count):
        q = [float(remembered[i, c]) for c in range(CLASSES)]
        entropy = -sum(v * log(v) for v in q)
        divergence = sum(float(p[i, c]) * (log(float(p[i, c])) - log(q[c])) for c in range(CLASSES))
        assert got[i].item() == pytest.approx(entropy + max(q) * divergence, abs=1e-9)


def test_a_memory_that_is_certain_and_right_costs_nothing():
    certain = torch.tensor([[50.0, 0.0, 0.0]])
    right, wrong = torch.tensor([[1.0, 0.0, 0.0]]), torch.tensor([[0.0, 1.0, 0.0]])
    assert memory_loss(certain, right).item() == pytest.approx(0, abs=1e-5)
    assert 5 < memory_loss(certain, wrong).item() < 100  # large, but finite


def test_an_empty_memory_gives_every_class_the_same_probability():
    features = torch.randn(5, SIZE)
    answers = attend(features, torch.zeros(CLASSES, SIZE), torch.full((CLASSES, CLASSES), 1 / CLASSES))
    assert torch.allclose(answers, torch.full((5, CLASSES), 1 / CLASSES))


# --- in steps ---------------------------------------------------------------------------------------------------------


def labelled_step(labels, seed=0):
    """Random images with these labels."""
    return step_of(normal(len(labels), SIZE, seed=seed), torch.tensor(labels))


def memory(rate=0.5):
    torch.manual_seed(0)
    return ClassMemory(HeadOnly(SIZE, CLASSES), "a", CLASSES, rate)


def test_it_starts_with_zero_keys_and_uniform_values():
    empty = memory()
    assert (empty.keys == 0).all()
    assert torch.allclose(empty.values, torch.full((CLASSES, CLASSES), 1 / CLASSES))


@given(st.lists(st.lists(st.integers(-1, CLASSES - 1), min_size=1, max_size=6), max_size=6), st.floats(0, 1))
def test_rows_of_values_stay_distributions_after_any_batches(batches, rate):
    filled = memory(rate)
    for seed, labels in enumerate(batches):
        filled.follow(labelled_step(labels, seed))
        assert torch.allclose(filled.values.sum(1), torch.ones(CLASSES), atol=1e-5)
        assert (filled.values >= 0).all()


def test_only_labelled_images_change_it():
    one, other, none = memory(), memory(), memory()
    labelled, changed = labelled_step([0, 2, 0, -1, -1]), labelled_step([0, 2, 0, -1, -1])
    changed.batch.images[3:] += 100.0
    one.follow(labelled)
    other.follow(changed)
    assert torch.equal(one.keys, other.keys)
    assert torch.equal(one.values, other.values)
    none.follow(labelled_step([-1, -1, -1]))
    assert torch.equal(none.keys, memory().keys)
    assert torch.equal(none.values, memory().values)
    assert (one.keys[1] == 0).all()  # a class without images in the batch
    assert (one.keys[[0, 2]] != 0).any(1).all()


def test_one_step_is_the_formula_with_the_students_features_and_answers():
    filled, step = memory(0.7), labelled_step([0, 2, 0, -1])
    filled.follow(step)
    p = filled.student(step.batch.images).softmax(1).detach()
    key = -0.7 * (0 - step.batch.images[0] + 0 - step.batch.images[2]) / 3
    value = torch.full((CLASSES,), 1 / CLASSES)
    value = value - 0.7 * (2 * value - p[0] - p[2]) / 3
    assert torch.allclose(filled.keys[0], key, atol=1e-6)
    assert torch.allclose(filled.values[0], value / value.sum(), atol=1e-6)


def test_a_labelled_image_is_answered_by_its_class_and_an_unlabelled_one_by_its_features():
    filled = memory()
    for seed in range(4):
        filled.follow(labelled_step([0, 1, 2, 0, 1, 2], seed))
    step = labelled_step([2, 0, -1, -1], 9)
    answers = filled(step)
    assert torch.equal(answers[0], filled.values[2])
    assert torch.equal(answers[1], filled.values[0])
    assert torch.allclose(answers[2:], attend(step.batch.images[2:], filled.keys, filled.values))


def test_gradient_reaches_the_features_of_unlabelled_images_alone():
    filled = memory()
    for seed in range(4):
        filled.follow(labelled_step([0, 1, 2, 0, 1, 2], seed))
    filled.keys += torch.randn(CLASSES, SIZE)
    step = labelled_step([2, -1], 9)
    step.batch.images.requires_grad_()
    filled(step)[:, 0].sum().backward()
    assert (step.batch.images.grad[0] == 0).all()
    assert (step.batch.images.grad[1] != 0).any()


def test_a_network_that_does_not_name_its_features_is_refused():
    with pytest.raises(UsageError, match="head"):
        ClassMemory(nn.Linear(2, 2), "a", 2)


def test_in_a_run_the_term_is_the_weighted_mean_over_the_batch():
    sizes = {"labels": 6, "width": 8, "steps": 10, "labelled_batch": 6, "unlabelled_batch": 10}
    training = plain_run("ma-dnn", {"weight": 0.3}, trained=3, **sizes)
    (student,), (filled, _) = training.method.students, training.method.followers
    assert (filled.keys != 0).any()
    step = training.step(3)
    loss = training.method.losses(step)["memory"].item()
    features, logits = step.features(student, "a").detach(), step.learn(student, "a").detach()
    total = 0.0
    for i, label in enumerate(step.batch.labels.tolist()):
        q = filled.values[label] if label >= 0 else attend(features[i : i + 1], filled.keys, filled.values)[0]
        total += memory_loss(logits[i : i + 1], q[None]).item()
    assert loss == pytest.approx(0.3 * total / 16, rel=1e-5)
