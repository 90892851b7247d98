"""A run behind the service answers like the run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from builders import plain_config
from services import as_json, client_of, picture

import certus
from certus.data import load as load_data
from certus.errors import CertusError, UsageError
from certus.serving.answerer import certainty, open_answerer
from certus.training.build import build
from certus.training.loop import train
from certus.training.run_folder import RunFolder


@pytest.fixture(scope="module")
def digits() -> np.ndarray:
    return np.repeat(load_data("digits", "").test.images[:40].numpy(), 3, axis=1)


def test_the_answers_are_those_of_the_run(trained: Path, digits: np.ndarray) -> None:
    found, expected = (
        open_answerer(trained, draws=0).answer(digits),
        certus.load(trained).predict(digits[:, :1], draws=0),
    )
    np.testing.assert_allclose(found.probabilities, expected.probabilities, atol=1e-6)
    assert set(found.uncertainty) == {"confidence", "witness"}
    for name, values in expected.uncertainty.items():
        np.testing.assert_allclose(found.uncertainty[name], values, atol=1e-5)


def test_an_answer_does_not_depend_on_the_pictures_beside_it(trained: Path, digits: np.ndarray) -> None:
    answerer = open_answerer(trained, draws=4)
    together = answerer.answer(digits)
    assert set(together.uncertainty) >= {"pe", "pv", "mi", "witness", "confidence"}
    assert together.uncertainty["pv"].min() > 0
    for order in (np.arange(40)[::-1], np.array([7]), np.array([39, 3, 3])):
        again = answerer.answer(digits[order])
        np.testing.assert_allclose(again.probabilities, together.probabilities[order], atol=1e-5)
        for name in ("pe", "pv", "mi", "witness"):
            np.testing.assert_allclose(again.uncertainty[name], together.uncertainty[name][order], atol=1e-4)


def test_shared_masks_measure_the_same_uncertainty(trained: Path, digits: np.ndarray) -> None:
    """On average over many draws it does not matter whether pictures share masks."""
    found = open_answerer(trained, draws=300).answer(digits).uncertainty["pv"]
    expected = certus.load(trained).predict(digits[:, :1], draws=300).uncertainty["pv"]
    assert np.corrcoef(found, expected)[0, 1] > 0.95
    assert found.mean() == pytest.approx(expected.mean(), rel=0.1)


def test_a_run_is_served(trained: Path) -> None:
    answerer = open_answerer(trained, draws=2)
    assert answerer.about.name == "run"
    assert answerer.about.metric == "witness"
    with client_of(answerer) as client:
        (answer,) = client.post("/predict", json=as_json(picture(200, (30, 20), "JPEG"))).json()["answers"]
        assert answer["label"] in answer["probabilities"]
        assert len(answer["probabilities"]) == 10
        expected = certainty("witness", answer["uncertainty"]["witness"], 10)
        assert answer["certainty"] == pytest.approx(expected, abs=1e-5)


def test_a_calibrated_run_is_silent_where_it_is_not_sure(tmp_path: Path, digits: np.ndarray) -> None:
    config = plain_config("supervised", data="digits", labels=400, validation=200, width=8, steps=60, labelled_batch=50)
    train(build(config), RunFolder(tmp_path / "run"))
    known = certus.calibrate(tmp_path / "run", error=25, metric="pe", draws=3)
    answerer = open_answerer(tmp_path / "run")
    assert answerer.draws == 3
    assert answerer.about.metric == "pe"
    assert answerer.about.limit == known.chosen.threshold
    assert f"{100 * known.chosen.bound:.2f} %" in answerer.about.promise
    found = answerer.answer(digits)
    assert found.answered is not None
    limit = np.inf if known.chosen.threshold is None else known.chosen.threshold
    assert found.answered.tolist() == (found.uncertainty["pe"] < limit).tolist()
    with pytest.raises(UsageError, match="calibrated with 3 draws"):
        open_answerer(tmp_path / "run", draws=0)


@pytest.mark.parametrize(
    ("metric", "uncertainty", "expected"),
    [("confidence", 0.3, 0.7), ("pe", 0.0, 1.0), ("pe", np.log(4), 0.0), ("witness", np.log(2), 0.5), ("mi", 9.0, 0.0)],
)
def test_certainty_is_from_0_to_1(metric: str, uncertainty: float, expected: float) -> None:
    assert certainty(metric, uncertainty, 4) == pytest.approx(expected)


def test_what_cannot_answer_pictures_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no run"):
        open_answerer(tmp_path / "nothing", 0)
    (tmp_path / "empty.onnx").touch()
    with pytest.raises(UsageError, match="no file that certus has exported"):
        open_answerer(tmp_path / "empty.onnx")
    train(build(plain_config("supervised", width=4, steps=1)), RunFolder(tmp_path / "moons"))
    with pytest.raises(UsageError, match="vectors"):
        open_answerer(tmp_path / "moons", 0)
    next((tmp_path / "moons" / "checkpoints").glob("*/state.json")).unlink()
    with pytest.raises(CertusError):
        open_answerer(tmp_path / "moons", 0)
