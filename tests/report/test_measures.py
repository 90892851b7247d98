"""The measures of answers against naive loops, scipy and scikit-learn."""

from __future__ import annotations

import pytest
import torch
from sklearn.metrics import confusion_matrix, roc_auc_score

from certus.certainty.scores import calibration_error
from certus.report import measures


def answers(n: int = 60, classes: int = 4, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(seed)
    probabilities = torch.randn(n, classes, generator=random).softmax(1)
    labels = torch.randint(classes, (n,), generator=random)
    return probabilities, labels, (10 * torch.rand(n, generator=random)).round()  # with ties


def test_ranked_bins_are_sorted_by_uncertainty_and_a_rest_is_left_out() -> None:
    right = torch.tensor([1, 0, 1, 1, 0, 0, 1])
    uncertainty = torch.tensor([0.7, 0.6, 0.1, 0.2, 0.5, 0.4, 0.3])
    assert measures.ranked_bins(right, uncertainty, 2) == [100.0, 50.0, 0.0]
    assert [measures.bin_size(n) for n in (5, 540, 999, 1000, 10000)] == [1, 54, 99, 100, 100]
    assert measures.rank_correlation([90, 80, 70]) == -1
    assert measures.rank_correlation([50, 50]) is None


@pytest.mark.parametrize("seed", range(5))
def test_auroc_is_scikit_learns_with_ties(seed: int) -> None:
    probabilities, labels, uncertainty = answers(seed=seed)
    missed = probabilities.argmax(1) != labels
    assert measures.auroc(missed, uncertainty) == pytest.approx(roc_auc_score(missed, uncertainty))
    assert measures.auroc(torch.zeros(4), torch.rand(4)) is None


def test_confusions_are_scikit_learns() -> None:
    probabilities, labels, _ = answers()
    expected = confusion_matrix(labels, probabilities.argmax(1), labels=range(4))
    assert (measures.confusion(probabilities, labels) == expected).all()


def test_reliability_s_bins_hold_every_image_and_give_the_calibration_error() -> None:
    probabilities, labels, _ = answers(200)
    found = measures.reliability(probabilities, labels)
    assert sum(found["images"]) == 200
    gaps = [n * abs(a - c) for n, c, a in zip(found["images"], found["confidence"], found["accuracy"], strict=True)]
    assert sum(gaps) / 200 == pytest.approx(calibration_error(probabilities, labels))


def test_mistakes_come_surest_first_and_classes_by_themselves() -> None:
    probabilities, labels, uncertainty = answers()
    predictions = probabilities.argmax(1)
    naive = sorted((i for i in range(60) if predictions[i] != labels[i]), key=lambda i: float(uncertainty[i]))
    assert measures.certain_mistakes(probabilities, labels, uncertainty, 7) == naive[:7]
    assert uncertainty[measures.least_certain(uncertainty, 3)].tolist() == uncertainty.sort().values[-3:].tolist()
    means = measures.by_class(uncertainty, labels, 5)
    assert means[4] is None
    assert means[0] == pytest.approx(uncertainty[labels == 0].mean().item())
