"""Peak memory of a step, counted from the tensors that it makes."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from certus.config import resolve
from certus.training.build import build
from certus.training.memory import Alive, step_bytes
from certus.training.planning import complete

MB = 10**6
SMALL = {"data": "digits", "labels": 10, "validation": 0, "width": 2, "labelled_batch": 5, "steps": 4, "threads": 1}


def test_peak_and_what_is_left_of_plain_tensors() -> None:
    with Alive() as alive:
        a = torch.zeros(250_000)  # 1 MB
        b = a + 1
        assert alive.now == 2 * MB
        del a
        assert alive.now == 1 * MB
        (b * 2).sum()
    assert alive.peak == 2 * MB + 4 or alive.peak == 2 * MB  # the product beside b, and perhaps the sum of 4 bytes


def test_views_and_changes_in_place_cost_nothing() -> None:
    with Alive() as alive:
        a = torch.zeros(250_000)
        b = a.view(500, 500)
        b.add_(1)
        a[:10].mul_(2)
        c = b.T
    assert alive.peak == MB
    assert c.sum() > 0


def test_backward_is_counted() -> None:
    layer = nn.Linear(1000, 250, bias=False)  # 1 MB of weights
    x = torch.randn(8, 1000)
    with Alive() as forward:
        loss = layer(x).square().sum()
    with Alive() as both:
        loss.backward()
    assert forward.peak < MB
    assert both.peak >= MB  # the gradient


def test_what_was_there_before_is_not_counted() -> None:
    a = torch.zeros(250_000)
    with Alive() as alive:
        a.add_(1)
        a.view(500, 500).T.mul_(2)
    assert alive.peak == 0


@pytest.mark.parametrize("method", ["supervised", "mean-teacher", "ft-ccl"])
def test_a_step_has_at_least_its_networks_gradients_and_momentum(method: str) -> None:
    run = build(complete(resolve({**SMALL, "method": method, "unlabelled_batch": 9})))
    trained = sum(p.nbytes for net in run.method.students for p in net.parameters())
    held = sum(t.nbytes for t in run.method.state.state_dict().values())
    assert step_bytes(run, 3) > held + 2 * trained


def test_more_images_need_more_and_the_count_repeats() -> None:
    small, again, large = (
        step_bytes(build(complete(resolve({**SMALL, "method": "mean-teacher", "unlabelled_batch": n}))), 3)
        for n in (9, 9, 90)
    )
    assert small == again
    assert large > 3 * small


def test_gradients_are_thrown_away() -> None:
    run = build(complete(resolve({**SMALL, "method": "pi", "unlabelled_batch": 9})))
    step_bytes(run, 3)
    assert all(p.grad is None for net in run.method.students for p in net.parameters())
