"""certus.train as a user calls it: what it returns, what it refuses, and that it is the command line's loop."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import certus
from certus.cli.main import run as command_line
from certus.data import load
from certus.errors import CertusError, Interrupted, UsageError
from certus.networks.precision import probe

SHORT = {"labels": 10, "width": 2, "labelled_batch": 10, "unlabelled_batch": 100, "threads": 1}
WORDS = "--labels 10 --width 2 --labelled-batch 10 --unlabelled-batch 100 --threads 1".split()


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    (newest,) = (folder / "checkpoints").iterdir()
    return load_file(newest / "state.safetensors")


def test_train_returns_a_model_that_answers_and_knows_its_result_and_folder() -> None:
    model = certus.train("digits", steps=4, out="run", **SHORT)
    assert model.folder == Path("run")
    assert model.result is not None
    assert model.result["steps"] == 4
    assert 0 <= model.result["test_error"] <= 100
    prediction = model.predict(np.zeros((3, 8, 8), np.uint8))
    assert prediction.probabilities.shape == (3, 10)
    assert sorted(prediction.rank()) == [1, 2, 3]
    again = certus.load("run").predict(np.zeros((3, 8, 8), np.uint8))
    assert np.array_equal(again.probabilities, prediction.probabilities)


def test_python_and_the_command_line_train_the_same_weights() -> None:
    certus.train("digits", method="mean-teacher", epochs=0.5, options={"weight": 3.0}, out="python", **SHORT)
    words = ["train", "--data", "digits", "--method", "mean-teacher", "--epochs", "0.5", "--weight", "3"]
    assert command_line([*words, *WORDS, "--out", "shell"]) == 0
    a, b = weights(Path("python")), weights(Path("shell"))
    assert a.keys() == b.keys()
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert Path("python/config.toml").read_text() == Path("shell/config.toml").read_text()


QUICK = {"method": "mean-teacher", "network": "sprint", "optimiser": "muon", "precision": "bf16", "warm_up": 0.5}


@pytest.mark.parametrize("settings", [SHORT, SHORT | QUICK], ids=["default", "quick"])
def test_an_interrupted_run_resumes_to_the_same_weights(settings: dict[str, object]) -> None:
    if settings.get("precision") == "bf16" and not probe().works:
        pytest.skip("bf16 does not work on this processor")
    whole = certus.train("digits", steps=12, out="whole", **settings)  # type: ignore[arg-type]

    def interrupt(tick: object) -> None:
        if tick.step == 5:  # type: ignore[attr-defined]
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted, match="everything is saved"):
        certus.train("digits", steps=12, out="stopped", listen=interrupt, **settings)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="already holds a run"):
        certus.train("digits", steps=12, out="stopped", **settings)  # type: ignore[arg-type]
    resumed = certus.train(resume="stopped")
    a, b = weights(Path("whole")), weights(Path("stopped"))
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert whole.result is not None
    assert resumed.result is not None
    assert resumed.result["test_error"] == whole.result["test_error"]


def test_without_a_folder_each_run_gets_a_new_one() -> None:
    first = certus.train("digits", method="supervised", steps=1, **SHORT)
    second = certus.train("digits", method="supervised", steps=1, **SHORT)
    assert (first.folder, second.folder) == (
        Path("runs/digits-supervised-10-seed0"),
        Path("runs/digits-supervised-10-seed0-2"),
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"lables": 3}, "There is no setting 'lables'. Did you mean 'labels'"),
        ({"labels": "ten"}, "`labels` must be of type int, but is 'ten'"),
        ({"method": "ft-cll"}, "Did you mean 'ft-ccl'"),
        ({"options": {"wieght": 3}}, "has no option"),
        ({"steps": 2, "epochs": 1}, "Give only one of `steps`, `epochs`"),
        ({"minutes": 0}, "`minutes` must be more than 0, but is 0"),
        ({"resume": "run"}, "leave out `data`"),
        ({"learning_rate": -1}, "`learning_rate` must be between 0 and 1,000, but is -1"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(given: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        certus.train("digits", **given)  # type: ignore[arg-type]
    assert not Path("runs").exists()


def test_numbers_of_numpy_are_numbers() -> None:
    model = certus.train("digits", method="supervised", steps=1, out="run", **SHORT | {"labels": np.int64(10)})
    assert model.result is not None
    assert model.result["labels"] == 10


def test_the_public_names_are_those_that_are_listed() -> None:
    assert sorted(certus.__all__) == dir(certus)
    for name in certus.__all__:
        assert getattr(certus, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        certus.trian  # noqa: B018


def test_compare_gives_what_the_command_line_gives() -> None:
    settings = {"width": 2, "labels": 6}
    comparison = certus.compare("moons", ["supervised", "pi"], seeds=2, epochs=1, workers=2, out="python", **settings)
    words = "compare --data moons --methods supervised,pi --seeds 2 --epochs 1 --workers 2 --width 2 --labels 6"
    assert command_line([*words.split(), "--out", "shell"]) == 0
    errors = {row.name: row.errors for row in comparison.rows}
    shell = json.loads(Path("shell/results.json").read_text())["methods"]
    assert errors == {n: {int(s): e for s, e in row["test_error"].items()} for n, row in shell.items()}
    assert "| supervised |" in str(comparison)
    assert Path("python/comparison.png").is_file()


def test_compare_says_which_run_failed() -> None:
    settings = {"learning_rate": 1000.0, "weight_decay": 1000.0, "width": 2, "labels": 6}
    with pytest.raises(CertusError, match=r"2 of 2 runs failed. supervised-seed0: The loss became"):
        certus.compare("moons", ["supervised", "pi"], seeds=1, epochs=2, workers=1, out="runs", **settings)


def test_a_loaded_model_rescales_floats_from_0_to_1() -> None:
    certus.train("digits", method="supervised", steps=3, out="run", **SHORT)
    model, images = certus.load("run"), load("digits").test.images[:20]
    expected = model.predict(images, draws=0).probabilities
    with pytest.warns(UserWarning, match="they are multiplied by 255"):
        found = model.predict(images.numpy() / 255, draws=0).probabilities
    assert np.allclose(found, expected, atol=1e-4)
    with pytest.raises(UsageError, match="bring them to that scale"):
        model.predict(images.numpy() / 127.5 - 1)
