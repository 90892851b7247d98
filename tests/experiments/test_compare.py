from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.image import imread

from certus.cli.main import run
from certus.errors import UsageError
from certus.experiments.compare import Pool, mean_std, paired
from certus.training.run_folder import RunFolder
from certus.training.stopping import Interrupted

WORDS = "compare --data moons --width 8 --labelled-batch 6 --unlabelled-batch 100 --epochs 2 --out out".split()
numbers = st.floats(0, 100)


@given(st.lists(st.tuples(numbers, numbers), min_size=2, max_size=8))
def test_the_interval_is_scipys_paired_one(pairs: list[tuple[float, float]]) -> None:
    a, b = ({i: p[side] for i, p in enumerate(pairs)} for side in (0, 1))
    found = paired(a, b)
    differences = [x - y for x, y in pairs]
    mean, std = mean_std(differences)
    assert found["mean"] == pytest.approx(mean)
    if std and std > 1e-6:
        result = scipy.stats.ttest_rel([p[0] for p in pairs], [p[1] for p in pairs]).confidence_interval(0.95)
        assert (found["low"], found["high"]) == pytest.approx((result.low, result.high), rel=1e-6, abs=1e-6)


def test_only_seeds_that_both_have_are_paired() -> None:
    assert paired({0: 5.0, 1: 7.0, 2: 9.0}, {1: 6.0, 2: 6.0, 3: 1.0})["mean"] == 2.0
    assert paired({0: 5.0}, {0: 4.0}) == {"n": 1, "mean": 1.0, "low": None, "high": None}
    assert paired({0: 5.0}, {1: 4.0})["n"] == 0


def test_compare_prints_a_table_and_writes_results_and_a_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [*WORDS, "--methods", "supervised,pi", "--seeds", "2"]
    assert run(words) == 0
    shown = capsys.readouterr().out
    assert shown.splitlines()[-1] == "Picture: out/comparison.png"
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results["reference"] == "supervised"
    for name, entry in results["methods"].items():
        assert entry["n"] == 2
        assert f"{entry['mean']:.2f} ± {entry['std']:.2f}" in shown
        for seed, error in entry["test_error"].items():
            assert RunFolder(tmp_path / "out" / f"{name}-seed{seed}").load_result()["test_error"] == error
    splits = {
        seed: {(tmp_path / "out" / f"{name}-seed{seed}" / "split.json").read_text() for name in ("supervised", "pi")}
        for seed in (0, 1)
    }
    assert all(len(texts) == 1 for texts in splits.values())  # the same split for every method at a seed
    assert splits[0] != splits[1]
    assert imread(tmp_path / "out" / "comparison.png").shape[2] == 4

    stamp = (tmp_path / "out" / "pi-seed0" / "result.json").stat().st_mtime_ns
    assert run([*words, "--json"]) == 0  # finished cells are not run again
    assert (tmp_path / "out" / "pi-seed0" / "result.json").stat().st_mtime_ns == stamp
    assert json.loads(capsys.readouterr().out) == results

    with pytest.raises(UsageError, match="already holds a run with other settings"):
        run([*words, "--labels", "8"])


def test_a_failed_run_is_said_and_the_others_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [*WORDS, "--methods", "supervised,pi", "--seeds", "1", "--weight", "1e38", "--ramp", "0"]
    assert run(words) == 1
    said = capsys.readouterr()
    assert "pi-seed0 failed: The loss turned" in said.err
    assert json.loads((tmp_path / "out" / "results.json").read_text())["methods"]["supervised"]["n"] == 1


def test_ctrl_c_saves_every_run_and_the_same_command_goes_on(tmp_path: Path) -> None:
    words = [
        *"compare --data digits --labels 10 --width 2 --unlabelled-batch 100 --epochs 60 --out out".split(),
        *"--methods supervised,mean-teacher --seeds 1 --workers 2".split(),
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "certus", *words], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    metrics = tmp_path / "out" / "mean-teacher-seed0" / "metrics.jsonl"
    while not (metrics.exists() and metrics.read_text()):
        assert process.poll() is None
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert "every run is saved. Go on with: certus compare" in err
    stopped = RunFolder(tmp_path / "out" / "mean-teacher-seed0")
    assert not stopped.finished()
    assert list(stopped.checkpoints.iterdir())
    again = subprocess.run([sys.executable, "-m", "certus", *words], cwd=tmp_path, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert stopped.finished()


def test_a_stopped_pool_begins_no_other_run() -> None:
    """A worker that has trained its run to the end when the stop comes looks for another: it must find none."""
    stopped = Pool(1)
    gone = SimpleNamespace(pid=None, is_alive=lambda: False, join=lambda **_: None)
    stopped.workers = [gone]  # type: ignore[list-item]
    for name in ("begun by nobody", "nor this"):
        stopped.tasks.put(name)
    stopped.__exit__(Interrupted)
    assert stopped.tasks.get(timeout=5) is None
