"""The average of earlier answers against its closed form, written as loops over the answers to each image."""

from types import SimpleNamespace

import pytest
import torch
from builders import plain_run, same_state
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from certus.teachers import Ensemble

IMAGES, CLASSES = 6, 3
SMALL = {"labels": 6, "width": 8, "steps": 12}
TWICE = {"labelled_batch": 9, "unlabelled_batch": 10}  # some of the 6 labelled images are twice in a batch


def ensemble(alpha=0.6):
    return Ensemble(nn.Identity(), "a", IMAGES, CLASSES, alpha)


def visit(index, probabilities=None):
    """The parts of a step that it reads: the student answers these images with these probabilities."""
    return SimpleNamespace(
        batch=SimpleNamespace(index=torch.tensor(index)),
        learn=lambda net, view: probabilities.log().requires_grad_(),  # noqa: ARG005
    )


def answers(n, random):
    return torch.randn(n, CLASSES, generator=random).softmax(1)


def closed_form(history, alpha):
    """Σ_t (1−α) α^(T−t) z_t / (1 − α^T)"""
    last = len(history)
    total = sum((1 - alpha) * alpha ** (last - t) * z.double() for t, z in enumerate(history, start=1))
    return total / (1 - alpha**last)


def remembered(visits):
    """The answers to each image, one per step that contains it: the mean if it is there twice."""
    history = {}
    for index, given_ in visits:
        for image in set(index):
            rows = [row for row, other in enumerate(index) if other == image]
            history.setdefault(image, []).append(sum(given_[row] for row in rows) / len(rows))
    return history


BATCHES = st.lists(st.lists(st.integers(0, IMAGES - 1), min_size=1, max_size=8), max_size=8)


@given(BATCHES, st.floats(0, 0.95), st.integers(0, 2**32))
def test_target_is_the_closed_form_and_an_image_never_visited_counts_nothing(batches, alpha, seed):
    random = torch.Generator().manual_seed(seed)
    visits = [(index, answers(len(index), random)) for index in batches]
    teacher = ensemble(alpha)
    for index, given_ in visits:
        teacher.follow(visit(index, given_))
    target, history = teacher(visit(list(range(IMAGES)))), remembered(visits)
    assert target.weight.tolist() == [float(image in history) for image in range(IMAGES)]
    assert torch.isfinite(target.logits).all()
    for image, past in history.items():
        assert torch.allclose(target.logits[image].exp().double(), closed_form(past, alpha), rtol=0, atol=1e-5)


def test_after_one_visit_the_target_is_the_answer():
    answer = answers(1, torch.Generator().manual_seed(0))
    for alpha in (0.0, 0.6, 0.999):
        teacher = ensemble(alpha)
        teacher.follow(visit([4], answer))
        assert torch.allclose(teacher(visit([4])).logits.softmax(1), answer, rtol=1e-4)


def test_an_answer_that_never_changes_is_its_own_target():
    answer, teacher = answers(2, torch.Generator().manual_seed(0)), ensemble()
    for _ in range(30):
        teacher.follow(visit([1, 2], answer))
        assert torch.allclose(teacher(visit([1, 2])).logits.softmax(1), answer, atol=1e-6)


def test_only_visited_images_change():
    random, teacher = torch.Generator().manual_seed(0), ensemble()
    teacher.follow(visit([0, 1, 2, 3], answers(4, random)))
    sums, visits = teacher.sums.clone(), teacher.visits.clone()
    teacher.follow(visit([2, 5], answers(2, random)))
    for image in range(IMAGES):
        assert torch.equal(teacher.sums[image], sums[image]) == (image not in (2, 5))
        assert teacher.visits[image] == visits[image] + (image in (2, 5))


def test_an_image_that_is_twice_in_a_batch_counts_once_with_the_mean_of_its_answers():
    three = answers(3, torch.Generator().manual_seed(0))
    twice, once = ensemble(), ensemble()
    twice.follow(visit([3, 1, 3], three))
    once.follow(visit([3, 1], torch.stack([(three[0] + three[2]) / 2, three[1]])))
    assert torch.allclose(twice.sums, once.sums, rtol=0, atol=1e-7)
    assert twice.visits.tolist() == once.visits.tolist() == [0, 1, 0, 1, 0, 0]


def test_a_class_of_probability_0_leaves_the_target_finite():
    teacher = ensemble()
    teacher.follow(visit([0], torch.tensor([[1.0, 0.0, 0.0]])))
    target = teacher(visit([0]))
    assert torch.isfinite(target.logits).all()
    assert target.logits.softmax(1)[0, 0] > 0.999


def run(**settings):
    return plain_run("temporal-ensembling", **{**SMALL, **TWICE, **settings})


def test_in_a_run_it_averages_the_answers_that_the_student_gave_while_learning():
    training = run()
    (student,), (teacher,) = training.method.students, training.method.followers
    answered, visits = [], []
    student.register_forward_hook(lambda _net, _given, logits: answered.append(logits.detach().softmax(1)))
    for number in range(8):
        training.advance(number)
        visits.append((training.batches(number).tolist(), answered[-1]))
    assert len(answered) == 8  # the forward that learns is the one that is remembered
    history = remembered(visits)
    assert min(map(len, history.values())) == 1
    assert max(map(len, history.values())) == 8
    assert int((teacher.visits > 0).sum()) == len(history)
    for image, past in history.items():
        target = teacher(visit([image]))
        assert torch.allclose(target.logits[0].exp().double(), closed_form(past, 0.6), rtol=0, atol=1e-5)


def test_the_first_step_has_no_consistency_and_later_ones_do():
    training = run(options={"ramp": 0.0})
    assert training.advance(0)["consistency"] == 0
    assert training.advance(1)["consistency"] > 0


def test_the_target_uses_answers_before_this_step_only():
    training = run()
    for number in range(3):
        training.advance(number)
    step = training.step(3)
    (teacher,) = training.method.followers
    before = teacher(step)
    training.method.losses(step)
    assert torch.equal(teacher(step).logits, before.logits)
    training.method.follow(step)
    assert not torch.equal(teacher(step).logits, before.logits)


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
    assert same_state(whole.method.state, second.method.state)
