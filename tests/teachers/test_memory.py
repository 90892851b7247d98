"""The memory of the classes against loops, and what moves it."""

from math import exp, log

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from certus.config import Config
from certus.core.schedules import Clock
from certus.core.step import Batch, Step
from certus.errors import UsageError
from certus.methods import METHODS
from certus.methods.ma_dnn import memory_loss
from certus.teachers import ClassMemory
from certus.teachers.memory import attend, moved
from certus.training.build import build
from certus.training.planning import complete
from certus.views import Chain

CLASSES, SIZE = 3, 4
SETTINGS = {  # not those of the presets, which are tuned anew now and then
    "moons": {"dropout": 0.1, "translate": 0, "noise": 0.3, "learning_rate": 0.02},
}
SEED = st.integers(0, 2**32)


def doubles(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@given(st.lists(st.integers(0, CLASSES - 1), max_size=8), st.floats(0, 1), SEED)
def test_moved_is_the_loop_over_classes_and_images(labels, rate, seed):
    old, seen = doubles(seed, CLASSES, SIZE), doubles(seed + 1, len(labels), SIZE)
    got = moved(old, seen, torch.tensor(labels, dtype=torch.int64), rate)
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


def test_a_memory_that_is_sure_and_right_costs_nothing():
    sure = torch.tensor([[50.0, 0.0, 0.0]])
    right, wrong = torch.tensor([[1.0, 0.0, 0.0]]), torch.tensor([[0.0, 1.0, 0.0]])
    assert memory_loss(sure, right).item() == pytest.approx(0, abs=1e-5)
    assert 5 < memory_loss(sure, wrong).item() < 100  # dear, and finite


def test_an_empty_memory_says_nothing_of_any_image():
    features = torch.randn(5, SIZE)
    said = attend(features, torch.zeros(CLASSES, SIZE), torch.full((CLASSES, CLASSES), 1 / CLASSES))
    assert torch.allclose(said, torch.full((5, CLASSES), 1 / CLASSES))


# --- in steps ---------------------------------------------------------------------------------------------------------


class Net(nn.Module):
    """Its features are the images."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(SIZE, CLASSES)

    def forward(self, images):
        return self.head(images)


def step_of(labels, seed=0):
    images = torch.randn(len(labels), SIZE, generator=torch.Generator().manual_seed(seed))
    batch = Batch(images, torch.tensor(labels), torch.arange(len(labels)))
    return Step(batch, Clock(0, 10, len(labels)), {"weak": Chain()}, 0)


def memory(rate=0.5):
    torch.manual_seed(0)
    return ClassMemory(Net(), "a", CLASSES, rate)


def test_it_starts_without_an_opinion():
    empty = memory()
    assert (empty.keys == 0).all()
    assert torch.allclose(empty.values, torch.full((CLASSES, CLASSES), 1 / CLASSES))


@given(st.lists(st.lists(st.integers(-1, CLASSES - 1), min_size=1, max_size=6), max_size=6), st.floats(0, 1))
def test_rows_of_values_stay_distributions_whatever_is_seen(batches, rate):
    kept = memory(rate)
    for seed, labels in enumerate(batches):
        kept.follow(step_of(labels, seed))
        assert torch.allclose(kept.values.sum(1), torch.ones(CLASSES), atol=1e-5)
        assert (kept.values >= 0).all()


def test_it_is_moved_by_labelled_images_and_by_nothing_else():
    one, other, none = memory(), memory(), memory()
    labelled, strangers = step_of([0, 2, 0, -1, -1]), step_of([0, 2, 0, -1, -1])
    strangers.batch.images[3:] += 100.0
    one.follow(labelled)
    other.follow(strangers)
    assert torch.equal(one.keys, other.keys)
    assert torch.equal(one.values, other.values)
    none.follow(step_of([-1, -1, -1]))
    assert torch.equal(none.keys, memory().keys)
    assert torch.equal(none.values, memory().values)
    assert (one.keys[1] == 0).all()  # of a class that was not there
    assert (one.keys[[0, 2]] != 0).any(1).all()


def test_one_step_is_the_formula_with_the_students_features_and_answers():
    kept, step = memory(0.7), step_of([0, 2, 0, -1])
    kept.follow(step)
    p = kept.student(step.batch.images).softmax(1).detach()
    key = -0.7 * (0 - step.batch.images[0] + 0 - step.batch.images[2]) / 3
    value = torch.full((CLASSES,), 1 / CLASSES)
    value = value - 0.7 * (2 * value - p[0] - p[2]) / 3
    assert torch.allclose(kept.keys[0], key, atol=1e-6)
    assert torch.allclose(kept.values[0], value / value.sum(), atol=1e-6)


def test_a_labelled_image_is_answered_by_its_class_and_an_unlabelled_one_by_what_it_looks_like():
    kept = memory()
    for seed in range(4):
        kept.follow(step_of([0, 1, 2, 0, 1, 2], seed))
    step = step_of([2, 0, -1, -1], 9)
    said = kept(step)
    assert torch.equal(said[0], kept.values[2])
    assert torch.equal(said[1], kept.values[0])
    assert torch.allclose(said[2:], attend(step.batch.images[2:], kept.keys, kept.values))


def test_gradient_reaches_the_features_of_unlabelled_images_alone():
    kept = memory()
    for seed in range(4):
        kept.follow(step_of([0, 1, 2, 0, 1, 2], seed))
    kept.keys += torch.randn(CLASSES, SIZE)
    step = step_of([2, -1], 9)
    step.batch.images.requires_grad_()
    kept(step)[:, 0].sum().backward()
    assert (step.batch.images.grad[0] == 0).all()
    assert (step.batch.images.grad[1] != 0).any()


def test_a_network_that_does_not_name_its_features_is_refused():
    with pytest.raises(UsageError, match="head"):
        ClassMemory(nn.Linear(2, 2), "a", 2)


def plain(given):
    """The method's own defaults where nothing is given."""
    options = METHODS[given["method"]].defaults() | dict(given.get("options", {}))
    return Config(**SETTINGS[given["data"]] | dict(given) | {"options": options})


def test_in_a_run_the_term_is_the_weighted_mean_over_the_batch():
    given = {"data": "moons", "method": "ma-dnn", "labels": 6, "validation": 0, "width": 8, "steps": 10, "threads": 1}
    given |= {"labelled_batch": 6, "unlabelled_batch": 10, "options": {"weight": 0.3}}
    training = build(complete(plain(given)))
    for number in range(3):
        training.advance(number)
    (student,), (kept,) = training.method.students, training.method.followers
    assert (kept.keys != 0).any()
    step = training.step(3)
    loss = training.method.losses(step)["memory"].item()
    features, logits = step.features(student, "a").detach(), step.learn(student, "a").detach()
    total = 0.0
    for i, label in enumerate(step.batch.labels.tolist()):
        q = kept.values[label] if label >= 0 else attend(features[i : i + 1], kept.keys, kept.values)[0]
        total += memory_loss(logits[i : i + 1], q[None]).item()
    assert loss == pytest.approx(0.3 * total / 16, rel=1e-5)
