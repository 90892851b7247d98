"""Labelled images weak and unlabelled ones strong, in one forward."""

import pytest
import torch
from torch import nn

from certus.config import resolve
from certus.core.schedules import Clock
from certus.core.step import Batch, Step
from certus.training.build import build
from certus.training.planning import complete

IMAGES = torch.arange(24.0).reshape(6, 4)
LABELS = torch.tensor([0, 1, -1, -1, -1, -1])


def add(amount):
    """A view that shifts by a constant and by noise of its own."""
    return lambda images, random: images + amount + torch.rand(images.shape, generator=random)


def step(number=0):
    batch = Batch(IMAGES, LABELS, torch.arange(6), labelled=2)
    return Step(batch, Clock(number, 10, 6), {"weak": add(100), "strong": add(200), "labelled": add(100)}, seed=0)


def test_each_part_has_its_own_view():
    change = step().view("a", "mixed") - IMAGES
    assert ((change[:2] >= 100) & (change[:2] <= 101)).all()
    assert ((change[2:] >= 200) & (change[2:] <= 201)).all()


def test_a_strong_view_has_other_noise_than_the_weak_one_of_that_name():
    s = step()
    weak, strong, mixed = (s.view("a", kind) - IMAGES for kind in ("weak", "strong", "mixed"))
    assert not torch.allclose(weak - 100, strong - 200)
    assert not torch.allclose(weak[:2], mixed[:2])


class Counting(nn.Module):
    """Counts its forwards."""

    def __init__(self):
        super().__init__()
        self.head, self.count = nn.Linear(4, 2), 0

    def forward(self, x):
        self.count += 1
        return self.head(x)


def test_both_terms_of_a_student_share_one_forward():
    net, s = Counting(), step()
    first, second = s.learn(net, "a", "mixed"), s.learn(net, "a", "mixed")
    assert first is second
    assert net.count == 1


@pytest.mark.parametrize("method", ["mean-teacher", "ft-ccl"])
def test_a_student_of_strong_views_runs_once_per_step(method):
    given = {"data": "digits", "labels": 10, "width": 2, "labelled_batch": 5, "unlabelled_batch": 9, "steps": 2}
    run = build(complete(resolve({**given, "method": method, "options": {"student_view": "strong"}, "threads": 1})))
    calls = []
    run.method.students[0].register_forward_hook(lambda *_: calls.append(1))
    run.advance(0)
    assert len(calls) == 1
