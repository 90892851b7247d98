"""The calibration of a run: what it is made from, what keeps it, and for which weights it holds."""

from __future__ import annotations

import json
import logging
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import certus
from certus.certainty.scores import negative_log_likelihood
from certus.errors import CertusError, UsageError
from certus.training.calibrating import read_calibration, validation_part, weights_digest
from certus.training.run_folder import RunFolder

SETTINGS = {"method": "supervised", "width": 32, "precision": "fp32", "threads": 1, "labelled_batch": 64}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("calibrating") / "run"
    certus.train("digits", labels=200, steps=40, validation=200, out=out, **SETTINGS)
    return out


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


def test_a_calibrated_run_says_what_it_answers(run: Path) -> None:
    plain = certus.load(run)
    part = validation_part(RunFolder(run), RunFolder(run).load_config())
    found = certus.calibrate(run, error=30)
    model = certus.load(run)
    assert model.calibration == found
    before, after = plain.predict(part.images), model.predict(part.images)
    assert before.answered is None
    assert after.answered is not None
    below = before.uncertainty["pe"] < (found.chosen.threshold or np.inf)
    assert np.array_equal(after.answered, below)
    assert after.answered.sum() == found.chosen.answered
    wrong = (before.labels != part.labels.numpy()) & below
    assert wrong.sum() == found.chosen.wrong
    assert np.array_equal(before.labels, after.labels)
    assert np.array_equal(before.uncertainty["pe"], after.uncertainty["pe"])
    assert found.log_loss[1] < found.log_loss[0]
    assert negative_log_likelihood(torch.from_numpy(after.probabilities), part.labels) == pytest.approx(
        found.log_loss[1]
    )


def test_other_draws_than_those_of_the_calibration_promise_nothing(run: Path) -> None:
    certus.calibrate(run, error=50)
    images = np.zeros((3, 8, 8), np.uint8)
    model = certus.load(run)
    assert model.predict(images, draws=10).answered is not None
    assert model.predict(images, draws=4).answered is None
    assert model.predict(images, draws=0).answered is None
    certus.calibrate(run, error=50, metric="confidence")
    assert certus.load(run).predict(images, draws=0).answered is not None


def test_the_calibration_of_other_weights_is_not_used(run: Path, caplog: pytest.LogCaptureFixture) -> None:
    certus.calibrate(run, error=50)
    model = certus.load(run)
    assert model.calibration is not None
    with torch.no_grad():
        next(model.nets[0].parameters()).view(-1)[0] += 1e-3
    with caplog.at_level(logging.WARNING, "certus"):
        assert read_calibration(RunFolder(run), model.digest) is None
    assert "calibrate again" in caplog.text


def test_the_digest_is_of_names_shapes_and_values() -> None:
    a, b = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    assert weights_digest([a]) != weights_digest([b])
    b.load_state_dict(a.state_dict())
    assert weights_digest([a]) == weights_digest([b]) != weights_digest([a, b])


@pytest.mark.parametrize(
    "change", [{"temperature": 0.0}, {"temperature": "1"}, {"metric": "luck"}, {"chosen": {}}, {"error": 2.0}]
)
def test_a_damaged_calibration_is_refused_with_its_name(run: Path, change: dict[str, object]) -> None:
    certus.calibrate(run, error=50)
    path = run / "calibration.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps({k: v for k, v in {**record, **change}.items() if k != "check"}))
    with pytest.raises(CertusError, match=r"calibration\.json is damaged"):
        certus.load(run)
    path.write_text(json.dumps({**record, "temperature": 3.0}))  # its checksum is another
    with pytest.raises(CertusError, match="checksum"):
        certus.load(run)


def test_what_cannot_be_promised_is_said_and_what_can_works(run: Path) -> None:
    with pytest.raises(CertusError, match=r"200 validation labels are too few .* 2 % .*`error` ([\d.]+) would") as e:
        certus.calibrate(run, error=2)
    assert not (run / "calibration.json").exists()
    percent = float(str(e.value).split("`error` ")[1].split()[0])
    assert certus.calibrate(run, error=percent).chosen.answered > 0
    with pytest.raises(UsageError, match="between 0 and 100"):
        certus.calibrate(run, error=0)
    with pytest.raises(UsageError, match="from 50"):
        certus.calibrate(run, confidence=100)
    with pytest.raises(UsageError, match="metric of this run 'witness'"):
        certus.calibrate(run, metric="witness")


def test_without_validation_labels_nothing_can_be_promised(tmp_path: Path) -> None:
    certus.train("digits", labels=20, steps=1, validation=0, out=tmp_path / "run", **SETTINGS)
    with pytest.raises(UsageError, match="has no validation labels"):
        certus.calibrate(tmp_path / "run")


def test_data_that_have_changed_are_refused(run: Path) -> None:
    folder = RunFolder(run)
    with pytest.raises(UsageError, match="has changed since"):
        validation_part(folder, replace(folder.load_config(), seed=3))
