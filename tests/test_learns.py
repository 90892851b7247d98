"""Every semi-supervised method must learn: on two moons with 6 labels it beats the labels alone, over ten seeds."""

from __future__ import annotations

from functools import cache
from statistics import fmean

import pytest

from certus.config import resolve
from certus.evaluate import errors
from certus.methods import METHODS
from certus.run import build, complete

SEEDS = range(10)
MARGIN = 0.5  # percentage points, mean over the seeds
SEMI_SUPERVISED = [name for name in METHODS if name != "supervised"]


@cache
def mean_error(method: str, weight: float | None = None) -> float:
    """Mean test error over the seeds at the preset's settings (which were chosen on validation labels)."""
    found = []
    for seed in SEEDS:
        options = {} if weight is None else {"weight": weight}
        run = build(complete(resolve({"data": "moons", "method": method, "seed": seed, "options": options})))
        for number in range(run.config.steps):
            run.advance(number)
        test = run.data.test
        found.append(fmean(errors(run.method.answers, run.data.normalised, test.images, test.labels)))
    return fmean(found)


@pytest.mark.parametrize("method", SEMI_SUPERVISED)
def test_it_beats_the_labels_alone(method: str) -> None:
    assert mean_error(method) < mean_error("supervised") - MARGIN


@pytest.mark.parametrize("method", ["pi", "mean-teacher"])
def test_without_its_term_it_does_not(method: str) -> None:
    """The margin tells a term that works from one that is not there."""
    assert mean_error(method, weight=0.0) > mean_error("supervised") - MARGIN
