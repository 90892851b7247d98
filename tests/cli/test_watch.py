"""certus watch, as a user types it."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path

import pytest
from builders import plain_run

from certus.cli import watch
from certus.cli.main import main
from certus.experiments.sweep_leader import PRUNED
from certus.training.lock import NAME
from certus.training.loop import Progress, train
from certus.training.run_folder import RunFolder

RUN = {"width": 4, "labelled_batch": 6, "unlabelled_batch": 200, "validation": 50, "steps": 12}


def begin(path: Path) -> RunFolder:
    folder, run = RunFolder(path), plain_run("pi", **RUN)
    folder.create(run)
    progress = Progress.of(run, folder, observe=False)
    for _ in range(6):
        progress.advance()
    return folder


def test_the_table_has_every_run_and_its_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    done = RunFolder(Path("shared/done"))
    train(plain_run("supervised", **RUN), done, observe=False)
    here, there, cut = (begin(Path("shared") / name) for name in ("here", "there", "sweep/trials/cut"))
    (here.path / NAME).write_text(json.dumps([os.getpid(), platform.node()]))
    (there.path / NAME).write_text(json.dumps([1, "elsewhere"]))
    (cut.path / PRUNED).touch()
    begin(Path("shared/bad")).metrics.write_bytes(b"{}\n")
    begin(Path("shared/quiet"))
    assert main(["watch", "shared", "--once"]) == 0
    shown = capsys.readouterr().out
    lines = [[cell.strip() for cell in line.split("│")[1:-1]] for line in shown.splitlines() if "│ shared" in line]
    rows = {name: cells for name, *cells in lines}
    error = done.load_result()["validation_error"]
    assert rows["shared/done"][:5] == ["supervised", "finished", "12/12", f"{error:.2f} %", ""]
    states = {name.removeprefix("shared/"): row[1] for name, row in rows.items()}
    assert states == {
        "done": "finished",
        "here": "running",
        "there": "running on elsewhere",
        "sweep/trials/cut": "pruned",
        "bad": "damaged",
        "quiet": "stopped",
    }
    assert rows["shared/here"][2] == "5/12"
    assert rows["shared/here"][4] == "0:00"
    assert rows["shared/here"][5].startswith("supervised 0.")
    assert "metrics.jsonl is" in rows["shared/bad"][5]
    assert "1 finished" in shown

    monkeypatch.setattr(watch.sys.stdout, "isatty", lambda: True, raising=False)  # type: ignore[attr-defined]
    looks: list[float] = []

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(watch.time, "sleep", sleep)  # type: ignore[attr-defined]
    assert main(["watch", "shared", "--seconds", "0.5"]) == 0  # until Ctrl-C
    assert looks == [0.5] * 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "certus watch needs the folder of a run"),
        ("nothing", "There is no folder nothing."),
        (". --seconds 0", "--seconds must be between 0.1 and 3600, but is 0."),
        (". --once", ". holds no run"),
    ],
)
def test_bad_input_is_one_sentence(
    words: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["watch", *words.split()]) == 2
    assert capsys.readouterr().err.startswith(f"certus: {message}")
