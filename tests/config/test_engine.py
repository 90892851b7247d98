"""The engine's tables hold settings that the commands take, and the most specific one wins."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any

import pytest

from certus.config import Config, resolve
from certus.config.engine import BY_BOTH, BY_DATA, BY_METHOD, EVERYWHERE, usual_steps
from certus.data import DATASETS
from certus.errors import UsageError
from certus.methods import METHODS
from certus.training.build import build
from certus.training.planning import complete

SETTINGS = {f.name for f in fields(Config)} - {"options"}


def test_the_tables_name_settings_and_options_that_exist() -> None:
    assert set(EVERYWHERE) <= SETTINGS
    assert BY_DATA.keys() <= DATASETS.keys()
    assert all(set(values) <= SETTINGS for values in BY_DATA.values())
    for method, values in BY_METHOD.items():
        assert set(values) <= SETTINGS | METHODS[method].defaults().keys()


def test_every_method_has_settings_and_warms_up_unless_it_is_supervised() -> None:
    assert BY_METHOD.keys() == set(METHODS)
    for method in METHODS:
        config = resolve({"data": "svhn", "method": method, "device": "cpu"})
        assert (config.warm_up == 0) == (method == "supervised")
        assert config.options.get("threshold", 0) < 0.82  # no answer to smoothed labels is more confident


@pytest.mark.parametrize(("data", "method"), BY_BOTH)
def test_what_a_method_has_on_a_data_set_wins(data: str, method: str) -> None:
    config = resolve({"data": data, "method": method, "device": "cpu"})
    assert config.network == "sprint"
    for name, value in BY_BOTH[data, method].items():
        assert (config.options[name] if name in METHODS[method].defaults() else getattr(config, name)) == value


@pytest.mark.parametrize("method", ["supervised", "mean-teacher", "ft-ccl", "fixmatch"])
def test_what_is_given_wins_over_the_engine(method: str) -> None:
    given = {"data": "digits", "method": method, "width": 8, "labelled_batch": 10, "device": "cpu"}
    config = resolve(given)
    assert {name: getattr(config, name) for name in given} == given
    assert config.unlabelled_batch == BY_DATA["digits"]["unlabelled_batch"]


@pytest.mark.parametrize(
    ("method", "options", "idle"),
    [
        ("ft-ccl", {"temper": False}, "heat"),
        ("ft-ccl", {"probabilistic": False}, "rho"),
        ("fixmatch", {"horizon": 0.3}, "decay"),
    ],
)
def test_a_preset_that_a_given_option_makes_idle_is_left_out(method: str, options: dict[str, Any], idle: str) -> None:
    """A saved run has every option, and an idle one that is not the default would be refused."""
    config = resolve({"data": "digits", "method": method, "options": options, "device": "cpu"})
    assert config.options[idle] == METHODS[method].defaults()[idle]
    assert resolve(asdict(config)) == config


@pytest.mark.parametrize(
    "given",
    [
        {"method": "mean-teacher", "options": {"student_view": "weak"}},
        {"method": "supervised", "labelled_view": "weak"},
        {"method": "supervised", "strong": "randaugment"},
    ],
)
def test_so_is_a_setting(given: dict[str, Any]) -> None:
    config = resolve({"data": "digits", "device": "cpu", **given})
    assert config.strength == Config.strength
    assert config.labelled_view == ("strong" if "strong" in given else "weak")
    assert resolve(asdict(config)) == config


def test_another_network_has_nothing_of_the_engine() -> None:
    config = resolve({"data": "digits", "method": "supervised", "network": "cnn13-small", "device": "cpu"})
    assert (config.width, config.labelled_batch, config.labelled_view, config.optimiser) == (0, 32, "weak", "sgd")


def test_digits_have_a_length_of_their_own() -> None:
    """And a run of another network the length in epochs."""
    config = complete(resolve({"data": "digits", "device": "cpu"}))
    assert config.steps == usual_steps(config) == 150
    assert complete(resolve({"data": "digits", "network": "cnn13-small", "device": "cpu"})).steps == 440


def test_a_network_with_weights_goes_on_from_them() -> None:
    given = {"data": "digits", "network": "efficientnet-lite0", "device": "cpu"}
    config = complete(resolve(given))
    assert (config.weights, config.optimiser, config.learning_rate, config.precision) == (
        "imagenet",
        "adam",
        2e-4,
        "fp32",
    )
    assert (config.width, config.momentum, config.steps) == (32, 0.0, usual_steps(config))
    assert resolve(asdict(config)) == config
    assert complete(resolve({**given, "network": "cnn13-small"})).weights == ""
    with pytest.raises(UsageError, match="starts from its own initialisation"):
        complete(resolve({**given, "network": "cnn13-small", "weights": "imagenet"}))
    with pytest.raises(UsageError, match="fixed width of 32"):
        build(complete(resolve({**given, "width": 8, "steps": 1, "guess": False})))
