"""Several processes do the same command in one folder at once: nothing is trained twice, and all have all results."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import certus
from certus.experiments.sweep_study import JOURNAL
from certus.training.run_folder import RunFolder

SCRIPT = Path(__file__).with_name("one_of_two.py")
SETTINGS = "--data moons --width 4 --labelled-batch 6 --unlabelled-batch 200 --epochs 2 --workers 1 --out out"
COMPARE = f"compare {SETTINGS} --methods supervised,pi --seeds 2".split()
SWEEP = f"sweep {SETTINGS} --validation 50 --method pi --set weight=1..30:log --trials 4 --pruner none".split()


@contextmanager
def two(words: list[str], folder: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """Each with its workers in a session of its own."""
    paths = os.pathsep.join([str(Path(certus.__file__).parents[1]), str(SCRIPT.parents[1])])
    processes = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), *words],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": paths},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        for _ in range(2)
    ]
    try:
        yield processes
    finally:
        for process in processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if not process.stdout.closed:  # type: ignore[union-attr]
                process.communicate()


def notes(folder: Path) -> list[list[str]]:
    file = folder / "trained"
    return [line.split() for line in file.read_text().splitlines()] if file.exists() else []


@pytest.mark.parametrize("words", [COMPARE, SWEEP], ids=["compare", "sweep"])
def test_two_processes_share_the_work_and_end_with_the_same_table(words: list[str], tmp_path: Path) -> None:
    with two(words, tmp_path) as processes:
        said = [process.communicate() for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    assert said[0][0] == said[1][0]  # the tables
    folders = [path.parent for path in (tmp_path / "out").rglob("config.toml")]
    assert len(folders) == 4
    assert all(RunFolder(folder).finished() for folder in folders)
    begun = notes(tmp_path)
    assert Counter(cell for cell, _ in begun) == {folder.name: 1 for folder in folders}
    assert len({process for _, process in begun}) == 2  # both have trained
    assert not list((tmp_path / "out").rglob(".lock"))
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    if words is COMPARE:
        assert {name: row["n"] for name, row in results["methods"].items()} == {"supervised": 2, "pi": 2}
    else:
        values = [json.dumps(RunFolder(folder).load_config().options["weight"]) for folder in folders]
        assert len(set(values)) == 4
        assert not list((tmp_path / "out").rglob(f"{JOURNAL}.lock"))


def test_what_a_killed_process_had_begun_is_taken_over_by_the_other(tmp_path: Path) -> None:
    with two(SWEEP, tmp_path) as (one, other):
        while not notes(tmp_path):
            time.sleep(0.05)
        [[cell, first]] = notes(tmp_path)[:1]
        lost, kept = (one, other) if int(first) == one.pid else (other, one)
        os.killpg(lost.pid, signal.SIGKILL)
        _, err = kept.communicate()
        assert kept.returncode == 0, err
    assert len(list((tmp_path / "out").rglob("result.json"))) == 4
    begun = Counter(cell for cell, _ in notes(tmp_path))
    assert begun.pop(cell) == 2
    assert set(begun.values()) == {1}
