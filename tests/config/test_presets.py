"""Presets are settings that the commands take, and hold what they say."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
from PIL import Image

from certus.config import Config, engine, resolve
from certus.config.presets import DATA, FOLDER, METHOD_PRESETS, PUBLISHED, TRAINING, TUNED, VECTORS
from certus.data import DATASETS
from certus.methods import METHODS
from certus.training.build import build
from certus.training.planning import complete

SETTINGS = {f.name for f in fields(Config)} - {"options"}
RIVALS = [name for name in METHODS if name != "supervised" and not name.endswith("ccl")]


def value(config: Config, name: str) -> object:
    return config.options[name] if name in METHODS[config.method].defaults() else getattr(config, name)


@pytest.mark.parametrize(("data", "method"), METHOD_PRESETS)
def test_every_preset_is_taken_whole(data: str, method: str) -> None:
    vectors = data in ("moons", VECTORS)
    config = resolve({"data": data, "method": method, "network": "mlp" if vectors else "cnn13"})
    assert data in DATASETS or data == VECTORS
    assert config.optimiser == ("muon" if data == VECTORS else "sgd")
    for name, expected in (DATA[data] | TRAINING.get(data, {}) | METHOD_PRESETS[data, method]).items():
        if name not in ("network", "method"):
            assert value(config, name) == expected or name in METHOD_PRESETS[data, method]
    for name, expected in METHOD_PRESETS[data, method].items():
        assert value(config, name) == expected


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("data", ["digits", "cifar10", "svhn", "fashion-mnist", FOLDER])
def test_without_a_gpu_every_method_has_the_engine(data: str, method: str, tmp_path: Path) -> None:
    config = resolve({"data": str(tmp_path) if data == FOLDER else data, "method": method, "device": "cpu"})
    assert (config.network, config.optimiser, config.precision) == ("sprint", "muon", "auto")
    assert config.mirror == config.flip == ("auto" if data == FOLDER else data not in ("digits", "svhn"))
    quick = engine.BY_METHOD.get(method, {}) | engine.BY_BOTH.get((data, method), {})
    for name, expected in quick.items():
        assert value(config, name) == expected
    for name, expected in METHOD_PRESETS.get((data, method), {}).items():  # a paper's λ and ε, not its rate
        kept = name in METHODS[method].defaults() and name not in quick
        assert not kept or value(config, name) == expected or name == "decay"  # which a horizon replaces


@pytest.mark.parametrize("network", ["cnn13", "wrn-28"])
def test_another_network_has_the_published_settings(network: str) -> None:
    config = resolve({"data": "cifar10", "method": "mean-teacher", "network": network})
    assert (config.optimiser, config.learning_rate, config.pace, config.mirror) == ("sgd", 0.1, "cosine", False)
    assert config.options["weight"] == 10
    assert config.options["student_view"] == "weak"


def test_with_a_gpu_the_published_settings_are_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert resolve({"data": "cifar10"}).optimiser == "sgd"
    assert resolve({"data": "cifar10", "device": "cpu"}).network == "sprint"
    assert resolve({"data": "cifar10", "network": "sprint"}).optimiser == "muon"


def test_presets_of_data_sets_are_settings() -> None:
    assert all(set(values) <= SETTINGS for known in (DATA, TRAINING, engine.BY_DATA) for values in known.values())
    assert engine.EVERYWHERE.keys() <= SETTINGS


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


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("photos")
    for name, shade in (("cat", 40), ("dog", 160), ("unlabeled", 100)):
        (root / name).mkdir()
        for i in range(12):
            Image.new("RGB", (16, 16), (shade + 3 * i, 90, 200 - shade)).save(root / name / f"{i}.png")
    return root


@pytest.mark.parametrize("method", METHODS)
def test_every_method_trains_on_a_folder_of_pictures_as_it_comes(method: str, photos: Path) -> None:
    small = {"width": 8, "labelled_batch": 6, "unlabelled_batch": 8, "threads": 1, "steps": 4}
    run = build(complete(resolve({"data": str(photos), "method": method, **small})))
    assert (run.config.network, run.config.optimiser) == ("sprint", "muon")
    for number in range(4):
        assert run.advance(number)


def test_a_folder_of_pictures_has_its_own_default_method(photos: Path) -> None:
    assert resolve({"data": str(photos)}).method == "mean-teacher"
    assert resolve({"data": "digits"}).method == "ft-ccl"
    assert resolve({"data": str(photos), "method": "ft-ccl"}).method == "ft-ccl"
