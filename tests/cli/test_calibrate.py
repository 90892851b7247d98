"""certus calibrate as a user types it, and what predict and evaluate say afterwards."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from builders import write_pictures

from certus.cli.main import main

WORDS = (
    "--data digits --labels 200 --validation 300 --labelled-batch 64 --method supervised --steps 40 --width 32 "
    "--precision fp32"
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("calibrate") / "run"
    assert main(["train", *WORDS.split(), "--threads", "1", "--out", str(out)]) == 0
    return out


def test_calibrate_then_predict_and_evaluate(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["calibrate", str(trained), "--error", "30"]) == 0
    shown = capsys.readouterr().out
    assert "300 validation labels" in shown
    assert shown.count("← chosen") == 1
    assert "temperature" in shown
    write_pictures(tmp_path / "new", "a.png", "b.png")
    out = tmp_path / "answers.csv"
    assert main(["predict", str(trained), str(tmp_path / "new"), "--out", str(out)]) == 0
    assert "Answered: " in capsys.readouterr().out
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert {row["answered"] for row in rows} <= {"yes", "no"}
    assert main(["predict", str(trained), str(tmp_path / "new"), "--out", str(out), "--draws", "3"]) == 0
    assert "--draws 10 alone" in capsys.readouterr().out
    assert "answered" not in out.read_text().splitlines()[0]
    assert main(["evaluate", str(trained), "--json"]) == 0
    known = json.loads(capsys.readouterr().out)["calibrated"]
    assert known["error"] <= 30
    assert known["answered"] > 0
    assert main(["evaluate", str(trained)]) == 0
    assert f"answered: {known['answered']}" in capsys.readouterr().out


def test_calibrate_refuses_in_one_sentence(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, code, text in (
        ([], 2, "needs the folder of a run"),
        ([str(trained), "--error", "0.1"], 1, "too few to promise at most 0.1 %"),
        ([str(trained), "--error", "-1"], 2, "--error must be between"),
        ([str(trained), "--metric", "luck"], 2, "no metric 'luck'"),
        ([str(trained), "--draws", "0", "--metric", "pe"], 2, "Without draws"),
    ):
        assert main(["calibrate", *words]) == code
        said = capsys.readouterr().err
        assert text in said
        assert said.count("\n") == 1
