"""The real torchrun: one sentence for an error, and for a process that is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from certus.training.run_folder import RunFolder

WORDS = "train --data digits --method supervised --labels 20 --network mlp --steps 100000 --save-seconds 0.1".split()


def start(*words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "certus"]
    return subprocess.Popen([*command, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ours(text: str) -> list[str]:
    """The lines that certus has printed, not torchrun."""
    return [line for line in text.splitlines() if line.startswith("certus: ")]


def workers(process: subprocess.Popen[str]) -> list[int]:
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [int(child) for child in children]


def test_a_killed_process_ends_all_with_one_sentence(tmp_path: Path) -> None:
    process = start(*WORDS, "--out", str(tmp_path / "run"))
    folder = RunFolder(tmp_path / "run")
    while folder.saved_step() < 3:
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    os.kill(workers(process)[-1], signal.SIGKILL)
    _, err = process.communicate(timeout=120)
    assert process.returncode
    (line,) = ours(err)
    assert line.startswith("certus: Another process of this run has ended")
    assert f"--resume {folder.path}" in line
    assert err.count("2 processes of 1 thread") == 1
    assert folder.saved_step() >= 3
    assert not (folder.path / ".lock").exists()


def test_wrong_words_are_refused_once(tmp_path: Path) -> None:
    process = start("compare", "--data", "digits", "--out", str(tmp_path / "run"))
    _, err = process.communicate(timeout=120)
    assert process.returncode
    (line,) = ours(err)
    assert "certus compare does not share its work with other processes" in line
    assert not (tmp_path / "run").exists()
