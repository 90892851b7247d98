"""benchmarks/selection.py: which targets its arms keep, and the share of the way that it prints."""

from __future__ import annotations

import pytest
import torch
from builders import normal
from hypothesis import given
from hypothesis import strategies as st
from selection import ARMS, COLUMNS, as_many, captured, choosing, table

from certus.config import resolve
from certus.data import load
from certus.training.build import build_on
from certus.training.planning import complete


@given(st.integers(0, 1000), st.integers(1, 20), st.data())
def test_the_least_doubtful_unlabelled_targets_are_kept(seed: int, n: int, data: st.DataObject) -> None:
    doubt = normal(n, seed=seed)
    unlabelled = torch.tensor(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    count = data.draw(st.integers(0, int(unlabelled.sum())))
    kept = as_many(doubt, unlabelled, count)
    least = sorted((i for i in range(n) if unlabelled[i]), key=lambda i: float(doubt[i]))[:count]
    assert kept.tolist() == [float(not unlabelled[i] or i in least) for i in range(n)]


@pytest.mark.parametrize("arm", ARMS)
def test_arms_keep_as_many_targets_as_are_right(arm: str) -> None:
    config = resolve({"data": "digits", "labels": 20, "method": "mean-teacher", "steps": 6, "warm_up": 0.5})
    run, choose = choosing(build_on(load("digits"), complete(config)), arm)
    for number in range(5):
        run.advance(number)
    step = run.step(5)
    term = run.method.terms["consistency"]
    weight = term.target(step).weight  # type: ignore[attr-defined]
    unlabelled = step.batch.labels < 0
    right = choose.labels[step.batch.index] == term.source(step).logits.argmax(1)  # type: ignore[attr-defined]
    assert weight[~unlabelled].min() == 1
    assert 0 < int(right[unlabelled].sum()) < int(unlabelled.sum())
    kept = weight.bool() & unlabelled
    assert int(kept.sum()) == int(unlabelled.sum() if arm == "every target" else right[unlabelled].sum())
    assert bool(right[kept].all()) == (arm == "right")
    assert len(choose.seen) == 3  # two steps after the warm-up, and this one


def test_the_share_of_the_way_is_that_of_seeds_that_have_all_three() -> None:
    errors = {"random": {0: 12.0, 1: 10.0}, "right": {0: 8.0, 1: 6.0, 2: 0.0}, "confidence": {0: 11.0, 1: 9.0, 2: 99.0}}
    assert captured(errors, "confidence") == pytest.approx(25)
    assert captured(errors, "right") == pytest.approx(100)
    assert captured(errors, "witness") is None


def test_the_table_has_what_was_run() -> None:
    def row(arm: str, error: float) -> dict[str, str]:
        found = ("svhn-100", arm, "40000", 0, error, 60, 80, 90, 1, 1, 1, "{}")
        return dict(zip(COLUMNS, map(str, found), strict=True))

    lines = table([row("random", 20.0), row("right", 10.0), row("confidence", 15.0)]).markdown().splitlines()
    assert lines[0] == "| validation error (%) | svhn-100 |"
    assert "| confidence: share of the way | 50 % |" in lines
    assert lines[-1] == "| n | 1 |"
