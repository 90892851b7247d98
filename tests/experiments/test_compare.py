from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from matplotlib.image import imread

from certus.cli.main import run
from certus.config import Config
from certus.errors import Interrupted, UsageError
from certus.experiments import plan
from certus.experiments.compare import compare_cells, comparison_cells, events_of, run_cells, write_comparison
from certus.experiments.pool import LocalPool, train_cell
from certus.training.run_folder import RunFolder

WORDS = "compare --data moons --width 8 --labelled-batch 6 --unlabelled-batch 100 --epochs 2 --out out".split()


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
    parts = ("labelled", "validation", "unlabelled", "wrong labels")

    def split(name: str, seed: int) -> str:
        found = RunFolder(tmp_path / "out" / f"{name}-seed{seed}").load_split()
        return str([found[part] for part in parts])

    splits = {seed: {split(name, seed) for name in ("supervised", "pi")} for seed in (0, 1)}
    assert all(len(texts) == 1 for texts in splits.values())  # the same split for every method at a seed
    assert splits[0] != splits[1]
    assert imread(tmp_path / "out" / "comparison.png").shape[2] == 4

    stamp = (tmp_path / "out" / "pi-seed0" / "result.json").stat().st_mtime_ns
    assert run([*words, "--json"]) == 0  # finished cells are not run again
    assert (tmp_path / "out" / "pi-seed0" / "result.json").stat().st_mtime_ns == stamp
    assert json.loads(capsys.readouterr().out) == results

    with pytest.raises(UsageError, match="already holds a run with other settings"):
        run([*words, "--labels", "8"])

    bad = RunFolder(tmp_path / "out" / "pi-seed0")
    for file in (bad.config, bad.result, bad.metrics, bad.predictions, bad.model):  # one bad run is named
        whole = file.read_bytes()
        file.write_bytes(whole[: len(whole) // 2] + b"\n")
        assert run([*words, "--json"]) == 1
        shown = capsys.readouterr()
        assert f"certus: pi-seed0 failed: {bad.path.relative_to(tmp_path)}" in shown.err
        assert file == bad.config or str(file.relative_to(tmp_path)) in shown.err
        methods = json.loads(shown.out)["methods"]  # and the others are shown
        assert list(methods["pi"]["test_error"]) == ["1"]
        assert methods["supervised"] == results["methods"]["supervised"]
        file.write_bytes(whole)


def test_what_a_worker_does_not_expect_ends_one_run(tmp_path: Path) -> None:
    settings = {"data": "moons", "width": 8, "labelled_batch": 6, "unlabelled_batch": 100}
    good, other = comparison_cells(["supervised"], 2, settings, epochs=1, out=tmp_path)
    broken = replace(other, config=None)  # type: ignore[arg-type]
    with LocalPool(1, train_cell) as pool:
        events = {name: (kind, value) for kind, name, value in events_of([broken, good], pool, Event())}
    assert events[good.name][0] == "result"
    kind, error = events[broken.name]
    assert kind == "failed"
    file = re.search(r"The details are in (\S+\.txt)", str(error))
    assert file
    assert "AttributeError" in Path(file[1]).read_text()
    Path(file[1]).unlink()


def test_the_same_from_python(tmp_path: Path) -> None:
    settings = {"data": "moons", "width": 8, "labelled_batch": 6, "unlabelled_batch": 100}
    options = {"weight": 2.0}  # pi has it, supervised has not
    cells = comparison_cells(["supervised", "pi"], 2, settings, options, epochs=2, out=tmp_path)
    assert [c.name for c in cells] == ["supervised-seed0", "pi-seed0", "supervised-seed1", "pi-seed1"]
    assert [c.config.options.get("weight") for c in cells] == [None, 2.0, None, 2.0]
    ticks, ended = set(), []
    results, failures = run_cells(
        cells, 1, lambda cell, _: ticks.add(cell.name), lambda cell, _: ended.append(cell.name)
    )
    assert not failures
    assert ended == [cell.name for cell in cells]
    assert ticks == set(ended)
    comparison = compare_cells(cells, results)
    for cell in cells:
        assert comparison[cell.arm].errors[cell.config.seed] == cell.folder.load_result()["test_error"]
    again, _ = run_cells(cells)  # reads the results
    assert again == results


def test_every_method_gets_the_same_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Timed once: the same command takes the same steps, and other settings are timed anew."""
    monkeypatch.chdir(tmp_path)
    words = "compare --data moons --width 8 --labelled-batch 6 --unlabelled-batch 100 --seeds 2 --minutes 0.004".split()
    words += ["--methods", "supervised,ft-ccl", "--json"]
    asked: list[tuple[str, float]] = []

    def timed_within(config: Config, minutes: float) -> Config:
        asked.append((config.method, minutes))
        return replace(config, steps=10 if config.method == "supervised" else 4)

    monkeypatch.setattr(plan, "timed_within", timed_within)
    assert run(words) == 0
    shown = capsys.readouterr().err
    assert "Timing a few steps of ft-ccl\n" in shown
    assert "0.004 minutes of one core each (steps: supervised 10, ft-ccl 4)" in " ".join(shown.split())
    assert asked == [("supervised", 0.004), ("ft-ccl", 0.004)]
    out = Path("runs/compare-moons-6-0.004min")
    steps = {
        (name, s): RunFolder(out / f"{name}-seed{s}").load_config().steps
        for name in ("supervised", "ft-ccl")
        for s in (0, 1)
    }
    assert steps == {("supervised", 0): 10, ("supervised", 1): 10, ("ft-ccl", 0): 4, ("ft-ccl", 1): 4}
    results = json.loads((out / "results.json").read_text())
    assert run(words) == 0
    assert len(asked) == 2
    assert json.loads((out / "results.json").read_text()) == results
    with pytest.raises(UsageError, match="already holds a run with other settings"):
        run([*words, "--dropout", "0.4"])
    assert len(asked) == 4
    with pytest.raises(UsageError, match=r"holds runs of 0\.004 minutes a run, not of 1 minutes a run"):
        comparison_cells(["supervised"], 1, {"data": "moons"}, out=out, minutes=1)


def test_minutes_are_timed_for_real(tmp_path: Path) -> None:
    first = comparison_cells(["supervised", "pi"], 1, {"data": "moons"}, out=tmp_path, minutes=0.02)
    assert all(cell.config.steps > 1 for cell in first)
    assert comparison_cells(["supervised", "pi"], 1, {"data": "moons"}, out=tmp_path, minutes=0.02) == first


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"minutes": 0.0}, "`minutes` must be more than 0, but is 0"),
        ({"minutes": 1.0, "epochs": 1.0}, "Give only one of `epochs`, `minutes`"),
        ({"methods": []}, "`methods` must name each method once, but is empty"),
        ({"methods": ["pi", "pi"]}, "`methods` must name each method once, but is pi, pi"),
        ({"seeds": 0}, "`seeds` must be at least 1, but is 0"),
        ({"epochs": 0.0}, "`epochs` must be more than 0, but is 0"),
        ({"options": {"heat": 2.0}}, "None of supervised, pi has an option `heat`"),
        ({"settings": {"data": "moon"}}, "moon"),
    ],
)
def test_a_comparison_that_makes_no_sense_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        comparison_cells(**{"methods": ["supervised", "pi"], "settings": {"data": "moons"}, **given})


def test_data_without_test_images_are_compared_by_validation_errors(tmp_path: Path) -> None:
    from PIL import Image

    for name in ("cat", "dog"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(12):
            shade = 90 * (name == "dog") + 7 * i
            Image.new("RGB", (16, 16), (shade, 90, 255 - shade)).save(tmp_path / "photos" / name / f"{i}.png")
    settings = {"data": str(tmp_path / "photos"), "labels": 0, "validation": 4, "steps": 3, "width": 2}
    cells = comparison_cells(["supervised"], 2, {**settings, "labelled_batch": 4}, out=tmp_path / "runs")
    results, failures = run_cells(cells, 1)
    assert not failures
    comparison, picture = write_comparison(cells, results, tmp_path / "runs")
    assert comparison.measure == "validation error"
    assert comparison["supervised"].errors == {s: results[f"supervised-seed{s}"]["validation_error"] for s in (0, 1)}
    assert picture
    assert picture.is_file()


def test_a_failed_run_is_reported_and_the_others_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [*WORDS, "--methods", "supervised,ft-ccl", "--seeds", "1", "--dropout", "0"]
    assert run(words) == 1
    assert "ft-ccl-seed0 failed: Monte-Carlo certainty needs dropout" in capsys.readouterr().err
    methods = json.loads((tmp_path / "out" / "results.json").read_text())["methods"]
    assert (methods["supervised"]["n"], methods["ft-ccl"]["n"], methods["ft-ccl"]["mean"]) == (1, 0, None)
    assert (tmp_path / "out" / "comparison.png").is_file()


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
    """A worker that finishes its run just as the pool stops asks for another: there must be none."""
    stopped = LocalPool(1, train_cell)
    gone = SimpleNamespace(pid=None, is_alive=lambda: False, join=lambda **_: None)
    stopped.workers = [gone]  # type: ignore[list-item]
    for name in ("waiting", "waiting too"):
        stopped.tasks.put(name)
    stopped.__exit__(Interrupted)
    assert stopped.tasks.get(timeout=5) is None


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def wait_until_gone(pids: list[int]) -> None:
    """Two seconds are enough where the machine is free."""
    end = time.monotonic() + 60
    while left := [pid for pid in pids if is_alive(pid)]:
        assert time.monotonic() < end, f"{left} are still there"
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


IDLE = """
import time
from certus.experiments.pool import LocalPool, train_cell
if __name__ == "__main__":
    with LocalPool(2, train_cell) as pool:
        print(*(worker.pid for worker in pool.workers), flush=True)
        {then}
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="there is no /proc")
@pytest.mark.parametrize(("then", "sent"), [("time.sleep(60)", signal.SIGKILL), ("os._exit(1)", None)])
def test_an_idle_worker_does_not_outlive_its_parent(then: str, sent: signal.Signals | None, tmp_path: Path) -> None:
    (tmp_path / "idle.py").write_text("import os\n" + IDLE.format(then=then))
    process = subprocess.Popen([sys.executable, "idle.py"], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    workers = [int(pid) for pid in process.stdout.readline().split()]
    assert len(workers) == 2
    if sent:
        process.send_signal(sent)
    process.wait()
    wait_until_gone(workers)
    process.stdout.close()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="there is no /proc")
@pytest.mark.parametrize("how", ["kill", "Ctrl-C twice"])
def test_a_worker_that_trains_saves_its_run_and_ends_with_its_parent(how: str, tmp_path: Path) -> None:
    words = [
        *"compare --data digits --labels 10 --width 2 --unlabelled-batch 100 --epochs 1000 --out out".split(),
        *"--methods supervised --seeds 1 --workers 1".split(),
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "certus", *words],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    folder = RunFolder(tmp_path / "out" / "supervised-seed0")
    while not (folder.metrics.exists() and folder.metrics.read_text()):
        assert process.poll() is None
        time.sleep(0.01)
    workers = children(process.pid)
    assert workers
    if how == "kill":
        process.kill()
    else:
        for _ in range(2):
            os.killpg(process.pid, signal.SIGINT)
            time.sleep(0.02)
    _, err = process.communicate(timeout=60)
    wait_until_gone(workers)
    assert "Traceback" not in err
    assert not folder.finished()
    with folder.held():
        pass
    if how == "kill":
        assert list(folder.checkpoints.glob("step-*"))
