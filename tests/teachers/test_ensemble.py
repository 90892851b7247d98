"""The ensemble of earlier answers against its closed form, written as loops over what was said of each image."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from certus.config import Config
from certus.methods import METHODS
from certus.teachers import Ensemble
from certus.training.build import build
from certus.training.planning import complete

IMAGES, CLASSES = 6, 3
SETTINGS = {  # not those of the presets, which are tuned anew now and then
    "moons": {"dropout": 0.1, "translate": 0, "noise": 0.3, "learning_rate": 0.02},
}
SMALL = {"data": "moons", "labels": 6, "validation": 0, "width": 8, "steps": 12, "threads": 1}
TWICE = {"labelled_batch": 9, "unlabelled_batch": 10}  # of 6 labelled images some stand twice in a batch


def ensemble(alpha=0.6):
    return Ensemble(nn.Identity(), "a", IMAGES, CLASSES, alpha)


def visit(index, said=None):
    """All that it reads of a step in which the student says these probabilities of these images."""
    return SimpleNamespace(
        batch=SimpleNamespace(index=torch.tensor(index)),
        learn=lambda net, view: said.log().requires_grad_(),  # noqa: ARG005
    )


def answers(n, random):
    return torch.randn(n, CLASSES, generator=random).softmax(1)


def closed_form(history, alpha):
    """Σ_t (1−α) α^(T−t) z_t / (1 − α^T)"""
    last = len(history)
    total = sum((1 - alpha) * alpha ** (last - t) * z.double() for t, z in enumerate(history, start=1))
    return total / (1 - alpha**last)


def remembered(visits):
    """What was said of each image, one entry per step in which it stood: the mean if it stood there twice."""
    history = {}
    for index, said in visits:
        for image in set(index):
            places = [place for place, other in enumerate(index) if other == image]
            history.setdefault(image, []).append(sum(said[place] for place in places) / len(places))
    return history


BATCHES = st.lists(st.lists(st.integers(0, IMAGES - 1), min_size=1, max_size=8), max_size=8)


@given(BATCHES, st.floats(0, 0.95), st.integers(0, 2**32))
def test_target_is_the_closed_form_and_an_image_never_visited_counts_nothing(batches, alpha, seed):
    random = torch.Generator().manual_seed(seed)
    visits = [(index, answers(len(index), random)) for index in batches]
    taught = ensemble(alpha)
    for index, said in visits:
        taught.follow(visit(index, said))
    target, history = taught(visit(list(range(IMAGES)))), remembered(visits)
    assert target.weight.tolist() == [float(image in history) for image in range(IMAGES)]
    assert torch.isfinite(target.logits).all()
    for image, said in history.items():
        assert torch.allclose(target.logits[image].exp().double(), closed_form(said, alpha), rtol=0, atol=1e-5)


def test_after_one_visit_the_target_is_what_was_said():
    said = answers(1, torch.Generator().manual_seed(0))
    for alpha in (0.0, 0.6, 0.999):
        taught = ensemble(alpha)
        taught.follow(visit([4], said))
        assert torch.allclose(taught(visit([4])).logits.softmax(1), said, rtol=1e-4)


def test_an_answer_that_never_changes_is_its_own_target():
    said, taught = answers(2, torch.Generator().manual_seed(0)), ensemble()
    for _ in range(30):
        taught.follow(visit([1, 2], said))
        assert torch.allclose(taught(visit([1, 2])).logits.softmax(1), said, atol=1e-6)


def test_only_visited_images_change():
    random, taught = torch.Generator().manual_seed(0), ensemble()
    taught.follow(visit([0, 1, 2, 3], answers(4, random)))
    sums, visits = taught.sums.clone(), taught.visits.clone()
    taught.follow(visit([2, 5], answers(2, random)))
    for image in range(IMAGES):
        assert torch.equal(taught.sums[image], sums[image]) == (image not in (2, 5))
        assert taught.visits[image] == visits[image] + (image in (2, 5))


def test_an_image_that_stands_twice_counts_once_with_the_mean_of_its_answers():
    said = answers(3, torch.Generator().manual_seed(0))
    twice, once = ensemble(), ensemble()
    twice.follow(visit([3, 1, 3], said))
    once.follow(visit([3, 1], torch.stack([(said[0] + said[2]) / 2, said[1]])))
    assert torch.allclose(twice.sums, once.sums, rtol=0, atol=1e-7)
    assert twice.visits.tolist() == once.visits.tolist() == [0, 1, 0, 1, 0, 0]


def test_a_class_that_was_never_said_leaves_the_target_finite():
    taught = ensemble()
    taught.follow(visit([0], torch.tensor([[1.0, 0.0, 0.0]])))
    target = taught(visit([0]))
    assert torch.isfinite(target.logits).all()
    assert target.logits.softmax(1)[0, 0] > 0.999


def plain(given):
    """The method's own defaults where nothing is given."""
    options = METHODS[given["method"]].defaults() | dict(given.get("options", {}))
    return Config(**SETTINGS[given["data"]] | dict(given) | {"options": options})


def run(**settings):
    return build(complete(plain({**SMALL, **TWICE, "method": "temporal-ensembling", **settings})))


def test_in_a_run_it_holds_what_the_student_said_while_it_learned():
    training = run()
    (student,), (taught,) = training.method.students, training.method.followers
    said, visits = [], []
    student.register_forward_hook(lambda _net, _given, logits: said.append(logits.detach().softmax(1)))
    for number in range(8):
        training.advance(number)
        visits.append((training.batches(number).tolist(), said[-1]))
    assert len(said) == 8  # the forward that learns is the one that is remembered
    history = remembered(visits)
    assert min(map(len, history.values())) == 1
    assert max(map(len, history.values())) == 8
    assert int((taught.visits > 0).sum()) == len(history)
    for image, answers in history.items():
        target = taught(visit([image]))
        assert torch.allclose(target.logits[0].exp().double(), closed_form(answers, 0.6), rtol=0, atol=1e-5)


def test_the_first_step_has_no_consistency_and_later_ones_do():
    training = run(options={"ramp": 0.0})
    assert training.advance(0)["consistency"] == 0
    assert training.advance(1)["consistency"] > 0


def test_the_target_reads_what_was_said_before_this_step():
    training = run()
    for number in range(3):
        training.advance(number)
    step = training.step(3)
    (taught,) = training.method.followers
    before = taught(step)
    training.method.losses(step)
    assert torch.equal(taught(step).logits, before.logits)
    training.method.follow(step)
    assert not torch.equal(taught(step).logits, before.logits)


@pytest.mark.parametrize("at", [1, 5])
def test_it_is_saved_and_resumed(at):
    whole, first, second = run(), run(), run()
    for number in range(8):
        whole.advance(number)
    for number in range(at):
        first.advance(number)
    state = first.method.state.state_dict()
    assert {"followers.0.sums", "followers.0.visits"} <= state.keys()
    second.method.state.load_state_dict(state)
    second.optimiser.load_state_dict(first.optimiser.state_dict())
    for number in range(at, 8):
        second.advance(number)
    expected, got = whole.method.state.state_dict(), second.method.state.state_dict()
    assert all(torch.equal(expected[name], got[name]) for name in expected)
