"""Answers to accept: against a naive loop."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import certus
from certus.errors import UsageError


@given(st.integers(0, 10_000), st.floats(0, 1), st.floats(0, 1))
def test_certain_answers_are_what_a_loop_finds(seed: int, sure: float, share: float) -> None:
    random = np.random.default_rng(seed)
    p, u = random.dirichlet(np.full(3, 0.3), 40), random.integers(0, 9, 40) / 9
    labels = np.where(random.random(40) < 0.3, 1, -1)
    free = sorted((i for i in range(40) if labels[i] < 0), key=lambda i: (u[i], i))
    naive = []
    for i in free:
        mine = [j for j in free if p[j].argmax() == p[i].argmax()]
        if mine.index(i) < math.ceil(share * len(mine)) and p[i].max() >= sure:
            naive.append(i)
    assert certus.find_certain(p, u, labels, sure, share).tolist() == naive


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"uncertainty": [0.1]}, r"`uncertainty` must be finite numbers of shape \(2,\)"),
        ({"uncertainty": [0.1, np.nan]}, "must be finite"),
        ({"sure": 1.5}, "from 0 to 1, but are 1.5 and 0.5"),
        ({"labels": [0]}, "`labels` must have the shape"),
    ],
)
def test_bad_input(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        certus.find_certain(**{"probabilities": np.eye(2), "uncertainty": [0.1, 0.2], **arguments})
