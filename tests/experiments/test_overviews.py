"""The ladder, the map and the record: their tasks, their runs from end to end, and what their figures show."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

from certus.cli import main as cli
from certus.experiments import paper
from certus.experiments.paper import Arm, Task, overviews, tables
from certus.experiments.paper.records import COLUMNS, Records
from certus.experiments.paper.scales import IMAGES, RECORD
from certus.training import planning
from certus.training.run_folder import RunFolder


def ask(*words: object) -> int:
    return cli.run(["paper", *map(str, words)])


@pytest.mark.parametrize(
    "task", [Task("svhn", 40), Task("cifar10", 4000, 0.5), Task("cifar100", 10, 0.25, 2_500_000), Task("a-1", 2, 0, 1)]
)
def test_a_task_is_known_by_its_name(task: Task) -> None:
    assert Task.named(task.name) == task


def test_what_is_asked_for_is_all_there() -> None:
    ladder, map_, record = (paper.experiment(name) for name in ("ladder", "map", "record"))
    assert [t.name for t in ladder.tasks[:4]] == [f"cifar10-4000-{n}M" for n in ("0.2", "0.6", "2.5", "10")]
    assert {t.plain for t in ladder.tasks} == {Task("cifar10", 4000), Task("cifar10", 1000), Task("svhn", 1000)}
    assert {t.labels for t in map_.tasks} == {40, 100, 250, 1000, 4000}
    names = {arm.name for arm in map_.arms}
    assert {"supervised", "mean-teacher", "fixmatch", "ft-ccl", "ft-ccl, as printed"} <= names
    for ranks in ("confidence", "random", "reversed"):
        assert {f"ft-ccl, {ranks} ranks", f"ft-ccl, as printed, {ranks} ranks"} <= names
    assert {"ft-ccl, PV ranks", "ft-ccl, as printed, PE ranks"} <= names
    lines = {t.name: [record.arms[0].printed(t), Arm("mean-teacher").printed(t)] for t in record.tasks}
    assert {name: [e[0] for e in printed if e] for name, printed in lines.items()} == {  # Liu & Tan 2021, table 1
        "cifar10-4000": [8.89, 12.31],
        "svhn-1000": [3.50, 3.95],
        "cifar10-1000": [13.45, 21.55],
    }
    assert (RECORD.minutes, RECORD.seeds) == (180, 1)


@pytest.mark.usefixtures("real_sizes")
def test_every_arm_of_a_rung_sees_as_many_images_and_supervised_learning_has_mean_teacher_s_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = Task("svhn", 1000, images=200_000)
    for arm in paper.experiment("map").arms[1:]:
        config = IMAGES.config(task, arm, 0)
        seen = (1 - config.warm_up) * config.steps * config.unlabelled_batch
        assert 200_000 <= seen < 200_000 + 2 * config.unlabelled_batch
        assert config.labelled_batch + config.unlabelled_batch == 384
    supervised = paper.experiment("map").arms[0]
    assert IMAGES.config(task, supervised, 0).steps == 0  # to be timed
    teacher = IMAGES.config(task, Arm("mean-teacher"), 0)
    monkeypatch.setattr(planning, "cost", lambda *_: planning.Cost(warm=1.0, full=2.0))
    minutes = IMAGES.minutes_of(task, supervised, "")
    assert minutes == pytest.approx(teacher.steps * (2 - teacher.warm_up) / 60)


@pytest.mark.usefixtures("real_sizes")
def test_the_ranks_of_a_family_differ_in_nothing_else() -> None:
    task = Task("svhn", 1000, images=200_000)
    for arms in (overviews.PRINTED_CCL, overviews.STRONG_CCL):
        first, *others = (IMAGES.config(task, arm, 0) for arm in arms)
        assert [arm.options.get("metric", "pv") for arm in arms].count("random") == 1
        for other in others:
            ranks = {name: first.options[name] for name in ("certainty", "metric", "draws")}
            assert replace(other, options={**other.options, **ranks}) == first
    printed = IMAGES.config(task, overviews.PRINTED_CCL[0], 0)
    kept = {name: printed.options[name] for name in ("weight", "ramp", "rho", "heat", "distance", "student_view")}
    assert kept == {"weight": 10, "ramp": 80, "rho": 0.4, "heat": 4, "distance": "mse", "student_view": "weak"}
    assert (printed.options["certainty"], printed.options["horizon"], printed.warm_up) == ("paper", 0, 0)


@pytest.mark.usefixtures("tiny")
def test_a_ladder_from_end_to_end_and_one_more_rung(files: Path, tmp_path: Path) -> None:
    public, out = tmp_path / "results", tmp_path / "runs"
    words = ("ladder", "--data-dir", files, "--out", out, "--seeds", 1, "--publish", public)

    def climb(images: str, only: str) -> None:
        assert ask(*words, "--images", images, "--only", only) == 0

    climb("0.0004", "cifar10-1000*/supervised; cifar10-1000*/mean-teacher")
    run = RunFolder(out / "cifar10-1000-0.0004M" / "mean-teacher-seed0").load_config()
    assert (run.steps, run.unlabelled_batch) == (20, 20)
    planned = json.loads((out / "plan.json").read_text())["arms"]
    assert list(planned) == ["cifar10-1000-0.0004M/supervised"]
    climb("0.0002", "cifar10-1000*/mean-teacher")
    page = (public / "ladder.md").read_text()
    assert page.index("## cifar10-1000-0.0002M") < page.index("## cifar10-1000-0.0004M")
    command = "certus paper ladder --images 0.0004 --only"
    assert f"`{command} 'cifar10-1000-0.0004M/supervised; cifar10-1000-0.0004M/mean-teacher' --seeds 1`" in page
    assert np.ptp(imread(public / "ladder.png")) > 0


@pytest.mark.usefixtures("tiny")
def test_a_map_from_end_to_end_with_random_labels(files: Path, tmp_path: Path) -> None:
    public, task = tmp_path / "results", "cifar10-40-noise50-0.0004M"
    names = ("mean-teacher", "ft-ccl", "ft-ccl, random ranks")
    only = "; ".join(f"{task}/{name}" for name in names)
    words = ("--images", "0.0004", "--noise", "0.5", "--only", only, "--data-dir", files, "--seeds", 1)
    assert ask("map", *words, "--out", tmp_path / "runs", "--publish", public) == 0
    with (public / "runs.csv").open(newline="") as file:
        assert {(row["task"], row["arm"]) for row in csv.DictReader(file)} == {(task, name) for name in names}
    split = json.loads((tmp_path / "runs" / task / "ft-ccl-seed0" / "split.json").read_text())
    assert split["wrong labels"]
    page = (public / "map.md").read_text()
    assert "--images 0.0004 --noise 0.5 --only" in page
    assert "selected right (%)" in page
    assert np.ptp(imread(public / "map.png")) > 0


@pytest.mark.usefixtures("tiny")
def test_a_record_from_end_to_end_goes_on_where_it_was(files: Path, tmp_path: Path) -> None:
    out, public = tmp_path / "runs", tmp_path / "results"
    words = ("record", "--task", "cifar10-1000", "--minutes", "0.004", "--data-dir", files, "--out", out)
    assert ask(*words, "--seeds", 1) == 0
    folder = RunFolder(out / "cifar10-1000" / "mean-teacher-record-seed0")
    written, steps = folder.result.stat().st_mtime_ns, folder.load_config().steps
    assert ask(*words, "--seeds", 1, "--publish", public) == 0
    assert folder.result.stat().st_mtime_ns == written
    assert json.loads((out / "plan.json").read_text())["arms"]["cifar10-1000/mean-teacher, record"]["steps"] == steps
    page = (public / "record.md").read_text()
    assert "the work that two cores do in 0.004 minutes" in page.replace("\n", " ")
    assert "| mean-teacher, record |" in page
    assert "| 13.45 ± 0.35 |" in page
    assert np.ptp(imread(public / "record.png")) > 0


# --- what the figures show


def row(task: Task, arm: str, seed: int, error: float) -> dict[str, Any]:
    values = {"method": arm.split(",")[0], "steps": 1, "settings": "", "scale": "images", "version": "0"}
    return {"task": task.name, "arm": arm, "seed": seed, "test_error": error, "seconds": 1.0, **values}


def records_of(runs: list[dict[str, Any]], **others: list[dict[str, Any]]) -> Records:
    named = {name.replace("_", "-"): rows for name, rows in others.items()}
    return Records({name: [] for name in COLUMNS} | {"runs": runs} | named)


def drawn(name: str, records: Records, scale: paper.Scale = IMAGES) -> Figure:
    figure = Figure()
    tasks = tables.tasks_of(paper.experiment(name), scale, records)
    overviews.OVERVIEWS[name](figure, tasks, records, scale)
    return figure


def test_the_ladder_shows_the_error_at_every_rung() -> None:
    rungs = [Task("svhn", 1000, images=n) for n in (200_000, 600_000)]
    runs = [row(t, "mean-teacher", s, 10 - i + 2 * s) for i, t in enumerate(rungs) for s in (0, 1)]
    (axes,) = drawn("ladder", records_of([*runs, row(rungs[1], "supervised", 0, 20)])).axes
    lines = {c.get_label(): c.lines[0].get_xydata().tolist() for c in axes.containers}  # type: ignore[attr-defined]
    assert lines == {"supervised": [[600_000, 20]], "mean-teacher": [[200_000, 11], [600_000, 10]]}
    assert axes.get_title() == "SVHN, 1,000 labels"


def test_the_map_shows_gains_against_the_share_of_right_targets() -> None:
    task = Task("svhn", 40, images=200_000)
    errors = {"ft-ccl": 30.0, "ft-ccl, random ranks": 34.0, "mean-teacher": 33.0, "ft-ccl, as printed": 50.0}
    runs = [row(task, arm, seed, error + seed) for arm, error in errors.items() for seed in (0, 1)]
    right = {"task": task.name, "arm": "ft-ccl, random ranks", "term": "consistency", "std": 0.0, "n": 2}
    targets = [{**right, "quantity": "all right", "epoch": e, "mean": m} for e, m in ((1, 40.0), (2, 60.0))]
    targets.append({**right, "quantity": "kept", "epoch": 1, "mean": 99.0})
    over_random, over_teacher = drawn("map", records_of(runs, targets=targets)).axes

    def points(axes: Any) -> dict[str, list[float]]:
        return {c.get_label(): c.lines[0].get_xydata()[0].tolist() for c in axes.containers}

    assert points(over_random) == {"PE ranks, strong views": [50.0, 4.0]}  # as printed has no random control here
    assert points(over_teacher) == {"PE ranks, strong views": [50.0, 3.0]}


def test_a_record_shows_minutes_and_the_lines_to_reach() -> None:
    task, arm = Task("svhn", 1000), "mean-teacher, record"
    curve = [{"task": task.name, "arm": arm, "epoch": e, "mean": m, "std": 0, "n": 1} for e, m in ((1, 9.0), (2, 6.0))]
    (axes,) = drawn("record", records_of([row(task, arm, 0, 5.5)], learning_curves=curve), RECORD).axes
    lines = {line.get_label(): np.asarray(line.get_xydata()).tolist() for line in axes.lines}
    assert lines["validation error"] == [[90, 9], [180, 6]]
    assert [y for label, xy in lines.items() for _, y in xy[:1] if label != "validation error"] == [3.50, 3.95]
    assert axes.collections[0].get_offsets().tolist() == [[180, 5.5]]  # type: ignore[union-attr]
