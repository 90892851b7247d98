"""The loss makes up for uneven classes: the frequency of the labels is added to the logits."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from builders import HeadOnly, normal, plain_run, step_of

from certus.core.student import See
from certus.core.terms import CrossEntropy
from certus.methods import METHODS, PRETRAINING


def test_the_prior_is_added_to_the_logits() -> None:
    images, labels = normal(6, 4), torch.tensor([0, 1, 2, 0, -1, -1])
    net, prior = HeadOnly(4, 3), torch.tensor([0.7, 0.2, 0.1]).log()
    step = step_of(images, labels)
    step.batch = replace(step.batch, prior=prior)
    p = (net.head(images) + prior).softmax(1)
    expected = -p[torch.arange(4), labels[:4]].log().mean()
    assert torch.isclose(CrossEntropy(See(net, "a"))(step), expected, atol=1e-6)


def test_an_even_prior_changes_nothing() -> None:
    images, labels = normal(6, 4), torch.tensor([0, 1, 2, 0, 1, 2])
    term, step = CrossEntropy(See(HeadOnly(4, 3), "a"), 0.2), step_of(images, labels)
    plain = term(step)
    step.batch = replace(step.batch, prior=torch.full((3,), 1 / 3).log())
    assert torch.isclose(term(step), plain, atol=1e-6)


@pytest.mark.parametrize("method", [name for name in METHODS if name not in PRETRAINING])
def test_every_method_learns_from_the_adjusted_loss(method: str) -> None:
    plain, adjusted = (
        plain_run(method, labels=9, balanced=False, seed=3, steps=10, balance=balance) for balance in ("none", "logits")
    )
    assert adjusted.prior is not None
    seen = plain.labels[plain.split.labelled].bincount(minlength=2)
    assert seen[0] != seen[1]
    assert torch.allclose(adjusted.prior.exp(), seen / 9)
    losses = [{n: v.item() for n, v in run.method.losses(run.step(0)).items()} for run in (plain, adjusted)]
    supervised = [name for name in losses[0] if name.startswith("supervised")]
    assert supervised
    assert all(losses[0][name] != losses[1][name] for name in supervised)
