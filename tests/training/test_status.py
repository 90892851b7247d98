"""How a run is doing, from its folder alone."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
from builders import plain_run

from certus.errors import UsageError
from certus.training.lock import NAME
from certus.training.loop import Progress, train
from certus.training.run_folder import RunFolder
from certus.training.status import SILENCE, read_status, runs_under

RUN = {"width": 4, "labelled_batch": 6, "unlabelled_batch": 200, "validation": 50, "steps": 12}


@pytest.fixture
def stopped(tmp_path: Path) -> RunFolder:
    """A run after 9 of its 12 steps; an epoch has 5."""
    folder, run = RunFolder(tmp_path / "run"), plain_run("pi", **RUN)
    folder.create(run)
    progress = Progress.of(run, folder, observe=False)
    for _ in range(9):
        progress.advance()
    progress.save()
    return folder


def written(folder: RunFolder) -> float:
    return folder.metrics.stat().st_mtime


def hold(folder: RunFolder, process: int, machine: str) -> None:
    (folder.path / NAME).write_text(json.dumps([process, machine]))


def test_a_run_is_stopped_running_finished_or_damaged(stopped: RunFolder) -> None:
    now = written(stopped) + 1
    status = read_status(stopped, now)
    last = stopped.load_metrics()[-1]
    assert (status.state, status.method, status.step, status.steps) == ("stopped", "pi", 9, 12)
    assert status.losses == last["losses"]
    assert status.validation_error == last["validation_error"]
    assert status.left is None

    with stopped.metrics.open("a") as file:
        file.write('{"epoch": 3, "st')  # just being written
    assert read_status(stopped, now) == status

    hold(stopped, os.getpid(), platform.node())
    running = read_status(stopped, now)
    assert (running.state, running.host, running.step) == ("running", "", 9)
    left = last["seconds"] / last["step"] * (12 - last["step"])
    assert running.left == pytest.approx(max(0.0, left - (now - written(stopped))))
    assert read_status(stopped, now + 1e6).left == 0
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    hold(stopped, gone.pid, platform.node())  # it was killed
    assert read_status(stopped, now).state == "stopped"
    (stopped.path / NAME).unlink()

    train(plain_run("pi", **RUN), stopped, observe=False)
    done = read_status(stopped, now)
    assert (done.state, done.step, done.left) == ("finished", 12, None)
    assert done.validation_error == stopped.load_result()["validation_error"]

    for file in (stopped.metrics, stopped.result, stopped.config):
        whole = file.read_bytes()
        file.write_bytes(whole[: len(whole) // 2] + b"\n}" + whole[len(whole) // 2 :])
        found = read_status(stopped, now)
        assert found.state == "damaged"
        assert file.name in found.reason
        file.write_bytes(whole)


def test_a_run_of_another_machine_is_running_while_its_folder_changes(stopped: RunFolder) -> None:
    """No process is asked for, and the lock is read but not taken."""
    hold(stopped, 2**30, "elsewhere")
    before = (stopped.path / NAME).stat()
    now = max(path.stat().st_mtime for path in stopped.path.iterdir())
    near = read_status(stopped, now + SILENCE - 5)
    assert (near.state, near.host) == ("running", "elsewhere")
    assert read_status(stopped, now + SILENCE + 5).state == "stopped"
    after = (stopped.path / NAME).stat()
    assert (after.st_mtime_ns, after.st_ino) == (before.st_mtime_ns, before.st_ino)


def test_runs_are_found_in_folders_of_folders(tmp_path: Path) -> None:
    for name in ("b/trials/one", "b/trials/two", "a"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "config.toml").touch()
    names = ["a", "b/trials/one", "b/trials/two"]
    assert [f.path for f in runs_under([tmp_path, tmp_path / "a"])] == [tmp_path / name for name in names]
    (tmp_path / "empty").mkdir()
    for path, message in ((tmp_path / "empty", "holds no run"), (tmp_path / "none", "There is no folder")):
        with pytest.raises(UsageError, match=message):
            runs_under([path])
