"""Killed at any moment, a run goes on to the bit-identical result of the uninterrupted one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from certus.cli.main import run
from certus.errors import UsageError
from certus.training.artefacts import sealed
from certus.training.run_folder import RunFolder

WORDS = (
    "train --data digits --method ft-ccl --teachers 2 --draws 2 --labels 10 --width 2 --labelled-batch 10 "
    "--unlabelled-batch 100 --epochs 3 --threads 1"
).split()
STEPS = 30
VARYING = ("seconds", "time", "images_per_second")  # what no two runs have in common


def start(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "certus", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def state(folder: Path) -> bytes:
    (newest,) = (folder / "checkpoints").iterdir()
    return (newest / "state.safetensors").read_bytes()


def steps_done(folder: Path) -> int:
    found = sorted((folder / "checkpoints").glob("step-*")) if (folder / "checkpoints").is_dir() else []
    return int(found[-1].name.removeprefix("step-")) if found else 0


def metrics(folder: Path) -> list[dict[str, object]]:
    return [{k: v for k, v in line.items() if k not in VARYING} for line in RunFolder(folder).load_metrics()]


def wait_for_step(process: subprocess.Popen[str], folder: Path, step: int) -> None:
    while steps_done(folder) < step:
        assert process.poll() is None, process.communicate()
        time.sleep(0.002)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert run([*WORDS, "--out", str(folder)]) == 0
    assert RunFolder(folder).load_result()["steps"] == STEPS
    return folder


def test_killed_at_several_points_and_resumed(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    words = [*WORDS, "--out", str(folder), "--save-seconds", "0"]
    for step in (0, 1, 7, 10, 16, 23):  # before the first checkpoint, in mid-epoch, at the end of an epoch
        process = start(*words)
        wait_for_step(process, folder, step)
        if step == 0:
            while not (folder / "config.toml").exists():
                time.sleep(0.002)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        assert steps_done(folder) < STEPS
        words = ["train", "--resume", str(folder), "--save-seconds", "0"]
    assert run(["train", "--resume", str(folder)]) == 0
    assert state(folder) == state(whole)
    assert metrics(folder) == metrics(whole)
    assert RunFolder(folder).load_result()["test_errors"] == RunFolder(whole).load_result()["test_errors"]


def test_ctrl_c_finishes_the_step_saves_and_says_how_to_go_on(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = start(*WORDS, "--out", str(folder), "--save-seconds", "0")
    wait_for_step(process, folder, 4)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert f"Go on with: certus train --resume {folder}" in err
    assert f"Stopped after step {steps_done(folder)} of {STEPS}" in err
    assert run(["train", "--resume", str(folder)]) == 0
    assert state(folder) == state(whole)


def test_a_run_is_not_gone_on_with_on_data_that_have_changed(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    assert run([*WORDS, "--out", str(folder.path)]) == 0
    folder.result.unlink()
    before, drawn = state(folder.path), json.loads(folder.split.read_text())
    others = {name: value for name, value in drawn.items() if name != "check"} | {"fingerprint": "0" * 16}
    folder.split.write_text(json.dumps(sealed(others)))  # as if the images were others
    with pytest.raises(UsageError, match="digits has changed since the run in "):
        run(["train", "--resume", str(folder.path)])
    assert state(folder.path) == before
    folder.split.write_text(json.dumps(drawn))
    assert run(["train", "--resume", str(folder.path)]) == 0
