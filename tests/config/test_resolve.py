"""What is left open is decided from data and machine; the length of an epoch is a function of config and data."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from certus.config import decide, decide_mirroring, estimate_by_folds, resolve, split_of, steps_per_epoch
from certus.data import Dataset, Part, load
from certus.data.mirroring import Verdict
from certus.errors import UsageError
from certus.training.build import build_on
from certus.training.planning import complete


def pictures(labelled: int, unlabelled: int) -> Dataset:
    n = labelled + unlabelled
    labels = torch.full((n,), -1)
    labels[:labelled] = torch.arange(labelled) % 2
    images = torch.zeros(n, 1, 8, 8, dtype=torch.uint8)
    empty = Part(images[:0], labels[:0])
    return Dataset("made up", ("a", "b"), Part(images, labels), empty)


@given(
    labelled=st.integers(2, 40),
    unlabelled=st.integers(0, 200),
    sizes=st.tuples(st.integers(1, 50), st.integers(1, 50)),
)
def test_steps_per_epoch_are_those_of_the_run(labelled: int, unlabelled: int, sizes: tuple[int, int]) -> None:
    data = pictures(labelled, unlabelled)
    given = {"method": "supervised", "labels": 0, "validation": 0, "width": 2, "steps": 1}
    config = decide(resolve({**given, "labelled_batch": sizes[0], "unlabelled_batch": sizes[1]}), data)
    assert steps_per_epoch(config, data) == build_on(data, config).batches.per_epoch
    n, size = (unlabelled, sizes[1]) if unlabelled else (labelled, sizes[0])
    assert steps_per_epoch(config, data) == max(1, round(n / size))


def test_a_run_of_some_epochs_has_that_many_steps() -> None:
    config = resolve({"data": "digits", "labels": 10, "unlabelled_batch": 100})
    data = load("digits")
    assert complete(config, epochs=3).steps == 3 * steps_per_epoch(decide(config, data), data)


def test_everything_is_decided() -> None:
    config = complete(resolve({"data": "digits"}))
    expected = ("cnn13-small", "cuda") if torch.cuda.is_available() else ("sprint", "cpu")
    assert (config.network, config.device) == expected
    assert config.precision in ("fp32", "bf16")
    assert config.warm_up > 0
    assert config.width > 0
    assert config.threads > 0
    assert config.steps > 0
    assert complete(config) == config


def test_an_unknown_device_is_refused() -> None:
    with pytest.raises(UsageError, match="`device` must be auto, cpu or cuda, but is 'gpu'"):
        complete(resolve({"data": "digits", "device": "gpu"}))


def labelled_pictures(sides: bool) -> Dataset:
    """Bright at the top or at the bottom; or on the left or on the right."""
    images = torch.randint(0, 60, (120, 1, 16, 16), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    labels = torch.arange(120) % 2
    for c, half in enumerate((slice(0, 8), slice(8, 16))):
        where = (Ellipsis, half) if sides else (Ellipsis, half, slice(None))
        part = images[labels == c]
        part[where] += 190
        images[labels == c] = part
    return Dataset("made up", ("a", "b"), Part(images, labels), Part(images[:0], labels[:0]))


@pytest.mark.parametrize("sides", [False, True])
def test_auto_mirrors_where_the_labels_allow_it(sides: bool) -> None:
    data = labelled_pictures(sides)
    given = {"data": "the images given", "network": "sprint", "labels": 40, "validation": 10, "balanced": False}
    config = resolve(given | {"flip": "auto"})
    assert config.flip == config.mirror == "auto"
    decided, verdict = decide_mirroring(config, data)
    assert decided.flip is decided.mirror is (not sides)
    assert verdict is not None
    assert decide(config, data).flip is decide(config, data).mirror is (not sides)
    for flip in (True, False):
        config = resolve(given | {"flip": flip})
        assert decide_mirroring(config, data) == (config, None)
        assert decide(resolve(given | {"flip": flip, "mirror": "auto"}), data).mirror is flip
    apart = decide(resolve(given | {"flip": "auto", "mirror": sides}), data)
    assert (apart.flip, apart.mirror) == (not sides, sides)


def test_only_labels_that_the_run_may_see_decide_about_mirroring(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[torch.Tensor] = []

    def judge(*args: object) -> Verdict:
        given.extend(args[1:3])  # type: ignore[arg-type]
        return Verdict(False, "")

    monkeypatch.setattr(sys.modules[decide.__module__], "judge", judge)
    data = labelled_pictures(False)
    config = resolve({"data": "the images given", "labels": 40, "validation": 10, "flip": "auto", "label_noise": 0.9})
    decide(config, data)
    labels, labelled = given
    assert torch.equal(labelled.sort().values, split_of(config, data).labelled)
    assert torch.equal((labels >= 0).nonzero()[:, 0], labelled.sort().values)
    assert not torch.equal(labels[labelled], data.train.labels[labelled])  # with its noise


def test_vectors_are_not_mirrored_and_other_words_are_refused() -> None:
    assert complete(resolve({"data": "moons", "flip": "auto", "steps": 3})).flip is False
    with pytest.raises(UsageError, match="`flip` must be of type bool, but is 'sometimes'"):
        resolve({"flip": "sometimes"})


@pytest.mark.parametrize(("counts", "expected"), [((30, 9), "logits"), ((30, 10), "none"), ((9, 30), "logits")])
def test_uneven_labels_are_balanced(counts: tuple[int, int], expected: str) -> None:
    labels = torch.cat([torch.zeros(counts[0]), torch.ones(counts[1]), torch.full((50,), -1)]).long()
    images = torch.zeros(len(labels), 1, 8, 8, dtype=torch.uint8)
    data = Dataset("made up", ("a", "b"), Part(images, labels), Part(images[:0], labels[:0]))
    given = {"data": "the images given", "labels": 0, "validation": 0}
    assert decide(resolve(given | {"balance": "auto"}), data).balance == expected
    assert decide(resolve(given), data).balance == "none"
    assert decide(resolve(given | {"balance": "batches"}), data).balance == "batches"


def test_a_folder_is_balanced_by_its_labels_and_pretraining_has_none(tmp_path: Path) -> None:
    assert resolve({"data": str(tmp_path)}).balance == "auto"
    assert resolve({"data": str(tmp_path), "method": "rotation"}).balance == "none"
    with pytest.raises(UsageError, match="`balance` would change nothing: rotation has no labels"):
        resolve({"data": str(tmp_path), "method": "rotation", "balance": "batches"})
    with pytest.raises(UsageError, match="`fit` would change nothing: it is for folders of pictures"):
        resolve({"data": "digits", "fit": "pad"})


@pytest.mark.parametrize(
    ("labelled", "expected"),
    [(2, 0), (19, 0), (20, 4), (21, 4), (50, 10), (12_000, 2_000)],
)
def test_a_fifth_of_the_labels_is_held_out_unless_they_are_few(labelled: int, expected: int) -> None:
    data = pictures(labelled, 30)
    config = resolve({"data": "the images given", "labels": 0, "validation": -1})
    assert decide(config, data).validation == expected
    assert decide(resolve({"data": "the images given", "labels": 0, "validation": 0}), data).validation == 0
    assert len(split_of(decide(config, data), data).labelled) == labelled - expected
    assert (estimate_by_folds(config, data) is None) == bool(expected)


def test_no_estimate_by_folds_where_the_data_or_the_user_bring_validation() -> None:
    data = pictures(4, 30)
    config = resolve({"data": "the images given", "labels": 0, "validation": -1})
    assert estimate_by_folds(config, data) is not None
    assert estimate_by_folds(replace(config, validation=2), data) is None
    assert estimate_by_folds(config, replace(data, validation=data.train)) is None
