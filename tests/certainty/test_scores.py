from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import brier_score_loss, log_loss, recall_score

from certus.certainty import scores


def answers(seed: int, n: int = 40, classes: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(seed)
    p = (2 * torch.randn(n, classes, generator=random)).softmax(1)
    labels = torch.randint(classes, (n,), generator=random)
    labels[:classes] = torch.arange(classes)
    return p, labels


@given(st.integers(0, 1000))
def test_scores_are_those_of_scikit_learn(seed: int) -> None:
    p, y = answers(seed)
    normed = p.double() / p.double().sum(1, keepdim=True)
    assert scores.negative_log_likelihood(p, y) == pytest.approx(log_loss(y, normed), rel=1e-5)
    assert scores.brier(p, y) == pytest.approx(brier_score_loss(y, normed, scale_by_half=False), rel=1e-5)
    found = scores.class_errors(p, y)
    assert found == pytest.approx(100 * (1 - recall_score(y, p.argmax(1), average=None)))
    assert scores.error(p, y) == pytest.approx(100 * np.mean(p.argmax(1).numpy() != y.numpy()))


@given(st.integers(0, 1000), st.sampled_from([1, 5, 15]))
def test_calibration_error_is_the_naive_sum_over_bins(seed: int, bins: int) -> None:
    p, y = answers(seed)
    confidence, right = p.double().amax(1).numpy(), (p.argmax(1) == y).numpy()
    total = 0.0
    for b in range(bins):
        inside = (confidence > b / bins) & (confidence <= (b + 1) / bins)
        if inside.any():
            total += inside.mean() * abs(right[inside].mean() - confidence[inside].mean())
    assert scores.calibration_error(p, y, bins) == pytest.approx(100 * total, abs=1e-9)


def test_perfect_answers_and_answers_that_are_all_wrong() -> None:
    y = torch.tensor([0, 1, 1])
    perfect = torch.eye(2)[y]
    assert (scores.error(perfect, y), scores.brier(perfect, y), scores.calibration_error(perfect, y)) == (0, 0, 0)
    assert scores.error(1 - perfect, y) == 100
    assert scores.brier(1 - perfect, y) == 2
    assert np.isfinite(scores.negative_log_likelihood(1 - perfect, y))


def test_a_class_without_images_has_no_error() -> None:
    assert scores.class_errors(torch.eye(3), torch.tensor([0, 1, 1])) == [0.0, 50.0, None]


def test_risk_grows_with_the_share_of_answered_images() -> None:
    y = torch.zeros(10, dtype=torch.long)
    wrong_at_the_end = torch.tensor([[1.0, 0.0]] * 7 + [[0.0, 1.0]] * 3)
    uncertainty = torch.arange(10.0)
    assert scores.risk_coverage(wrong_at_the_end, y, uncertainty, [0.05, 0.7, 0.8, 1.0]) == pytest.approx(
        [0, 0, 12.5, 30]
    )
    assert scores.risk_coverage(wrong_at_the_end, y, -uncertainty, [0.3])[0] == 100
