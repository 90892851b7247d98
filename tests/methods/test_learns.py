"""Every semi-supervised method must learn: on two moons with 6 labels it beats the labels alone, over six seeds.

Supervised training has its own best learning rate. (docs/methods.md has the same for digits with 20 labels.)
"""

from __future__ import annotations

from functools import cache
from statistics import fmean

import pytest

from certus.config import resolve
from certus.methods import METHODS
from certus.training.build import build
from certus.training.evaluation import errors
from certus.training.planning import complete

SEEDS = range(6)
MARGIN = 0.25  # percentage points, mean over the seeds
HARM = 1.5  # six seeds of ma-dnn were 0.6 points worse on test images, and six others 1.2 better on validation images
# These make a student more certain of its own answers and use no neighbourhood: where six labels put the boundary
# across a moon, it stays. On two moons no setting was found at which they gain; on digits they do.
SELF_CONFIRMING = ["pseudo-label", "entropy-minimisation", "ma-dnn"]
SEMI_SUPERVISED = [name for name in METHODS if name not in ("supervised", *SELF_CONFIRMING)]


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


@pytest.mark.parametrize("method", SELF_CONFIRMING)
def test_a_method_that_only_confirms_itself_does_no_harm(method: str) -> None:
    assert mean_error(method) < mean_error("supervised") + HARM


@pytest.mark.parametrize("method", ["pi", "mean-teacher"])
def test_without_its_term_it_does_not_beat_the_labels_alone(method: str) -> None:
    """The margin separates a term that works from a term with weight 0."""
    assert mean_error(method, weight=0.0) > mean_error("supervised") - MARGIN
