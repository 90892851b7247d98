"""What is left open is decided from data and machine; the length of an epoch is a function of config and data."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from certus.config import decide, resolve, steps_per_epoch
from certus.data import Dataset, Part, load
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
