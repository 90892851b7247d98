"""Pictures are mirrored only if the labels show that left and right do not matter."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from certus.data import load
from certus.data.descriptors import describe, held_out_answers, in_folds
from certus.data.mirroring import Verdict, judge, lost

NAMES = tuple("abcdefgh")


def blobs(n: int, classes: int, sides: bool = False, noise: float = 0.1, seed: int = 0):  # type: ignore[no-untyped-def]
    """Pictures that differ by the height of a bright blob, anywhere between left and right. `sides`: the last two
    classes are at the same height, one on the left and one on the right."""
    rng = np.random.default_rng(seed)
    labels = np.resize(np.arange(classes), n)
    height = labels * 28 // classes + 2
    column = rng.integers(4, 28, n)
    if sides:
        height[labels == classes - 1] = height[labels == classes - 2][0]
        column = np.where(labels == classes - 2, column // 3 + 2, column)
        column = np.where(labels == classes - 1, 27 - column // 3, column)
    y, x = np.mgrid[:32, :32]
    at = (y - height[:, None, None]) ** 2 + (x - column[:, None, None]) ** 2
    images = 255 * np.clip(np.exp(-at / 12) + noise * rng.standard_normal(at.shape), 0, 1)
    return torch.from_numpy(images.astype(np.uint8))[:, None], torch.from_numpy(labels)


def verdict(images: torch.Tensor, labels: torch.Tensor, seed: int = 0) -> Verdict:
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    return judge(images, labels, order, NAMES[: int(labels.max()) + 1])


def test_pictures_without_a_left_side_are_mirrored() -> None:
    found = verdict(*blobs(200, 3))
    assert found.flip
    assert str(found).startswith("Pictures are mirrored at random: of each class, a quick model recognises 100% as")
    assert found == verdict(*blobs(200, 3))


def test_one_pair_of_mirrored_classes_is_enough_not_to() -> None:
    found = verdict(*blobs(240, 8, sides=True))
    assert not found.flip
    assert found.reason in ("g looks like another class in the mirror", "h looks like another class in the mirror")
    assert verdict(*blobs(240, 8)).flip


def test_common_classes_do_not_outvote_rare_ones() -> None:
    """Half of the classes are left or right, but have a tenth of the labels."""
    images, labels = blobs(400, 4, sides=True)
    rare = (labels >= 2).nonzero()[:, 0]
    index = torch.cat([(labels < 2).nonzero()[:, 0], rare[:20]])
    found = judge(
        images, labels, index[torch.randperm(len(index), generator=torch.Generator().manual_seed(0))], NAMES[:4]
    )
    assert not found.flip


def test_a_class_that_is_lost_is_named() -> None:
    labels = torch.arange(20).repeat(20)  # of twenty classes, one is never recognised in the mirror
    as_they_are, in_the_mirror = torch.ones(400, dtype=torch.bool), labels != 7
    assert lost(as_they_are, in_the_mirror, labels, 20) == [7]
    noise = torch.rand(2, 400, generator=torch.Generator().manual_seed(0)) < 0.4
    assert lost(noise[0], noise[1], labels, 20) == []


@pytest.mark.parametrize("labels", [100, 300])
def test_digits_are_not_mirrored(labels: int) -> None:
    train = load("digits").train
    found = judge(train.images, train.labels, torch.arange(labels), tuple("0123456789"))
    assert not found.flip
    assert "in the mirror" in found.reason


def test_thin_evidence_mirrors_nothing() -> None:
    images, labels = blobs(29, 3)
    assert (
        verdict(images, labels).reason == "29 labels are too few to tell (use `flip` if left and right do not matter)"
    )
    noise = torch.randint(0, 256, (60, 1, 32, 32), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    found = verdict(noise, blobs(60, 3)[1])
    assert not found.flip


def test_many_labels_are_a_sample() -> None:
    images, labels = blobs(40, 2)
    index = torch.arange(40).repeat(5000)
    assert judge(images, labels, index, NAMES[:2]).flip  # 200,000 would take minutes


def test_the_descriptors_of_the_mirror_image_are_those_of_the_flipped_image() -> None:
    images, _ = blobs(9, 3)
    everything = torch.arange(9)
    assert torch.equal(describe(images, everything, mirror=True), describe(images.flip(-1), everything))
    assert torch.allclose(describe(images, everything[[4]]), describe(images, everything)[[4]], atol=1e-5)
    assert torch.isfinite(describe(torch.zeros(2, 3, 8, 8, dtype=torch.uint8), everything[:2])).all()


def test_folds_share_every_class() -> None:
    labels = torch.tensor([1, 0, 1, 0, 1, 0, 1, 0, 1, 1])
    fold = in_folds(labels, 2)
    assert fold[labels == 0].bincount().tolist() == [2, 2]
    assert fold[labels == 1].bincount().tolist() == [3, 3]


def test_no_row_is_answered_by_a_model_that_has_seen_it() -> None:
    x = torch.eye(12)  # nothing in common: what was not seen is unknown
    labels = torch.arange(12) % 3
    (answers,) = held_out_answers(x, labels, (x,), folds=4)
    assert not torch.equal(answers, labels)
    naive = torch.empty_like(labels)
    fold = in_folds(labels, 4)
    one = torch.cat([x, torch.ones(12, 1)], 1).double()
    target = torch.nn.functional.one_hot(labels).double()
    for k in range(4):
        seen = one[fold != k]
        w = torch.linalg.solve(seen.T @ seen + 0.1 * torch.eye(13).double(), seen.T @ target[fold != k])
        naive[fold == k] = (one[fold == k] @ w).argmax(1)
    assert torch.equal(answers, naive)
