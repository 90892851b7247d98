"""Presets are settings that the commands take, and hold what they say."""

from __future__ import annotations

from dataclasses import fields

import pytest

from certus.config import Config, resolve
from certus.config.presets import METHOD_PRESETS, PRESETS, PUBLISHED, TUNED
from certus.data import DATASETS
from certus.methods import METHODS

SETTINGS = {f.name for f in fields(Config)} - {"options"}
RIVALS = [name for name in METHODS if name != "supervised" and not name.endswith("ccl")]


@pytest.mark.parametrize(("data", "method"), METHOD_PRESETS)
def test_every_preset_is_taken_whole(data: str, method: str) -> None:
    config = resolve({"data": data, "method": method})
    assert data in DATASETS
    for name, value in METHOD_PRESETS[data, method].items():
        assert (config.options[name] if name in METHODS[method].defaults() else getattr(config, name)) == value


def test_presets_of_data_sets_are_settings() -> None:
    assert all(set(values) <= SETTINGS for values in PRESETS.values())


def test_published_and_tuned_ones_do_not_meet() -> None:
    assert not PUBLISHED.keys() & TUNED.keys()
    assert {data for data, _ in PUBLISHED} == {"cifar10", "cifar100", "svhn"}


@pytest.mark.parametrize("method", RIVALS)
def test_every_rival_with_published_constants_has_them_on_cifar10(method: str) -> None:
    """Entropy minimisation has none."""
    assert (("cifar10", method) in PUBLISHED) == (method != "entropy-minimisation")


@pytest.mark.parametrize("method", METHODS)
def test_every_constant_names_its_source(method: str) -> None:
    recipe = METHODS[method]
    assert recipe.reference
    for f in fields(recipe.options):
        assert f.metadata["source"] or recipe.cited[-4:].isdigit()
