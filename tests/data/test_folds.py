"""With few labels, the error of a quick model is estimated fold by fold."""

from __future__ import annotations

import re

import pytest
import torch

from certus.data import load
from certus.data.folds import estimate

USED = "Fewer than 10 labels per class: all {} are used for training, so this run measures no error."


def balanced(each: int) -> torch.Tensor:
    labels = load("digits").train.labels
    return torch.cat([(labels == c).nonzero()[:each, 0] for c in range(10)])


def test_the_estimate_is_near_the_error_on_other_images() -> None:
    train = load("digits").train
    text = estimate(train.images, train.labels, balanced(4))
    assert text.startswith(USED.format(40))
    found = re.search(r"is wrong on (\d+)% ± (\d+)% of the rest", text)
    assert found
    assert 2 <= int(found[1]) <= 40
    assert 2 <= int(found[2]) <= 9


def test_labels_that_are_noise_have_the_error_of_chance() -> None:
    images = torch.randint(0, 256, (40, 3, 16, 16), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    found = re.search(r"wrong on (\d+)%", estimate(images, torch.arange(40) % 10, torch.arange(40)))
    assert found
    assert int(found[1]) > 70


def test_one_label_per_class_gives_no_estimate() -> None:
    train = load("digits").train
    assert estimate(train.images, train.labels, balanced(1)) == (
        USED.format(10) + " To measure it, put labelled pictures into a folder test/."
    )


@pytest.mark.parametrize("more", [0, 5])
def test_a_class_with_one_label_is_not_tested(more: int) -> None:
    """Of two classes that are told apart without error and one that has a single picture, the error is 0."""
    images = torch.zeros(5 + more, 1, 16, 16, dtype=torch.uint8)
    labels = torch.tensor([0, 0, 1, 1, 2] + [0] * more)
    images[labels == 0, :, :8] = 250
    images[labels == 1, :, 8:] = 250
    images[labels == 2, :, :, :8] = 250
    assert "is wrong on 0% ±" in estimate(images, labels, torch.arange(len(labels)))
