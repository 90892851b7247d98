"""The paper's experiments: what they train, how they continue, their tables, and what they publish."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from certus.cli import main as cli
from certus.cli import paper as cli_paper
from certus.config import Config
from certus.errors import CertusError, UsageError
from certus.experiments import paper, plan
from certus.experiments.paper import Arm, Experiment, Scale, Task, scales, tables
from certus.experiments.paper.cells import cells as paper_cells
from certus.experiments.paper.cells import chosen, pretraining_cells
from certus.experiments.paper.printed import ARMS, TABLE1
from certus.experiments.paper.records import COLUMNS, Records
from certus.experiments.paper.scales import CPU, FULL, OWN, SCALES
from certus.experiments.plan import Plan
from certus.methods import METHODS
from certus.report.report import write_report
from certus.report.runs import RunRecord
from certus.report.statistics import paired
from certus.training.lock import locked
from certus.training.run_folder import RunFolder


def ask(*words: object) -> int:
    return cli.run(["paper", *map(str, words)])


def every_cell(scale: Scale) -> list[tuple[Experiment, Task, Arm]]:
    """Of the experiments that this scale is for, every arm on one task and every task with one arm."""
    own = [e for e in paper.EXPERIMENTS.values() if e.scale == (scale.name if scale.name in OWN else "")]
    found = [(e, t, a) for e in own for t, a in paper.chosen(e, scale)]
    one = {t.name: (e, t, a) for e, t, a in found} | {a.name: (e, t, a) for e, t, a in found}
    return list(one.values())


def untimed(out: Path) -> Plan:
    return Plan(out, "cpu", timing=False)


def test_what_the_paper_prints_is_all_there() -> None:
    assert list(paper.EXPERIMENTS)[:4] == ["table1", "uncertainty", "selection", "noise"]
    table = paper.experiment("table1")
    assert {(t.data, t.labels) for t in table.tasks} == set(TABLE1)
    rows = {arm.name for arm in table.arms}
    assert set(ARMS) <= rows
    for task, printed in TABLE1.items():
        assert set(printed) <= rows, task
    assert {t.noise for t in paper.experiment("noise").tasks} == {0.2, 0.3, 0.5}


@pytest.mark.usefixtures("real_sizes")
@pytest.mark.parametrize(
    ("experiment", "base", "metrics"),
    [
        ("ablation", "ft-ccl", ("random", "confidence", "reversed")),
        ("views", "ft-ccl, strong views", ("random", "confidence")),
    ],
)
def test_the_controls_differ_in_their_ranks_alone(experiment: str, base: str, metrics: Sequence[str]) -> None:
    arms = {arm.name: arm for arm in paper.experiment(experiment).arms}
    without = CPU.config(Task("svhn", 1000), arms[base], 0).options
    for metric in metrics:
        with_it = CPU.config(Task("svhn", 1000), arms[f"{base}, {metric} ranks"], 0).options
        assert {k: v for k, v in with_it.items() if v != without[k]} == {"metric": metric}


@pytest.mark.usefixtures("real_sizes")
def test_strong_views_with_every_target_have_neither_filter_nor_temperature() -> None:
    arms = {arm.name: arm for arm in paper.experiment("views").arms}
    strong, every = (
        CPU.config(Task("svhn", 1000), arms[f"ft-ccl, strong views{more}"], 0).options
        for more in ("", ", every target")
    )
    changed = {k: v for k, v in every.items() if v != strong[k] and k not in ("rho", "heat")}  # these are idle then
    assert changed == {"hard": False, "probabilistic": False, "temper": False}


@pytest.mark.usefixtures("real_sizes")
@pytest.mark.parametrize("scale", (SCALES | OWN).values(), ids=SCALES | OWN)
def test_every_cell_of_every_experiment_is_a_valid_run(scale: Scale) -> None:
    for experiment, task, arm in every_cell(scale):
        config = scale.config(task, arm, 3)
        assert (config.data, config.labels, config.label_noise) == (task.data, task.labels, task.noise)
        assert (config.method, config.seed, config.threads) == (arm.method, 3, 1), experiment.name
        timed = scale.minutes > 0 or (task.images > 0 and arm.method == "supervised")
        assert (config.steps == 0) == timed


@pytest.mark.usefixtures("real_sizes")
def test_full_is_the_size_of_the_paper() -> None:
    for _, task, arm in every_cell(FULL):
        config = FULL.config(task, arm, 0)
        assert (config.network, config.width) == ("cnn13", 128)
        assert config.labelled_batch + config.unlabelled_batch == 512
        if "ccl" in arm.method or arm.method == "mean-teacher":
            assert (config.labelled_batch, config.learning_rate, config.options["ramp"]) == (128, 0.1, 80)
    assert FULL.seeds == 5
    ft = FULL.config(Task("cifar10", 1000), Arm("ft-ccl"), 0)
    assert ft.steps == 300 * 125  # 48,000 unlabelled images in batches of 384
    assert ft.options["certainty"] == "paper"


@pytest.mark.usefixtures("real_sizes")
def test_full_has_what_the_authors_of_the_rivals_have() -> None:
    fastswa = FULL.config(Task("cifar10", 4000), Arm("mean-teacher-fastswa"), 0)
    assert fastswa.steps == pytest.approx(1200 * 45_000 / 384, rel=0.01)  # Athiwaratkun et al. 2019: 1,200 epochs
    for labels, k in ((1000, 0.6), (2000, 0.6), (4000, 1.0)):  # Luo et al. 2018
        assert FULL.config(Task("cifar10", labels), Arm("pi-sntg"), 0).options["graph"] == k
    vat = next(arm for arm in paper.experiment("table1").arms if arm.name == "vat, with entropy")
    assert ARMS[vat.name] == "VAT+Ent"
    assert FULL.config(Task("svhn", 1000), vat, 0).options["ent"]
    fixmatch = FULL.config(Task("cifar10", 4000), Arm("fixmatch"), 0)
    assert fixmatch.unlabelled_batch == 7 * fixmatch.labelled_batch  # Sohn et al. 2020


@pytest.mark.usefixtures("real_sizes")
def test_each_student_of_a_circle_starts_from_its_own_rotnet(tmp_path: Path) -> None:
    """Liu & Tan 2021: the students differ in their initialisation."""
    table, three = paper.experiment("table1"), "svhn-1000/ft-ccl-3-teachers*"
    cells = chosen(table, FULL, three)
    (run, *_) = paper_cells(cells, FULL, 1, untimed(tmp_path), "")
    starts = run.config.init.split(",")
    assert len(set(starts)) == 3
    pretraining = pretraining_cells(cells, FULL, 1, untimed(tmp_path), "")
    assert [str(cell.folder.path) for cell in pretraining] == starts
    assert len({cell.config.seed for cell in pretraining}) == 3


def test_in_the_paper_s_table_ccl_starts_from_rotnet_and_nothing_else_does() -> None:
    chosen = paper.chosen(paper.experiment("table1"), FULL)
    here = {arm.name: arm for task, arm in chosen if task.name == "svhn-1000"}
    assert len(here) == len(chosen) / 5
    controls = {"supervised, from RotNet", "mean-teacher, from RotNet", "ft-ccl, from random weights"}
    assert controls <= here.keys()
    assert all(arm.rotnet == ("ccl" in arm.method) for name, arm in here.items() if name not in controls)
    assert [here[name].rotnet for name in sorted(controls)] == [False, True, True]
    assert not any(arm.rotnet for _, arm in paper.chosen(paper.experiment("uncertainty"), FULL))
    ft = next(arm for task, arm in chosen if arm.name == "ft-ccl, 2 teachers, from RotNet")
    assert ft.printed(Task("cifar10", 1000)) == (13.68, 0.38)


def test_pretraining_is_done_once_for_each_data_set_and_seed(tiny: Scale, files: Path, tmp_path: Path) -> None:
    scale = replace(tiny, rotnet=True)
    chosen = paper.chosen(paper.experiment("table1"), scale, "cifar10-1000/filtering-ccl;cifar10-1000/supervised*")
    before = paper.pretraining_cells(chosen, scale, 2, untimed(tmp_path), str(files))
    assert [(c.config.method, c.config.seed) for c in before] == [("rotation", 0), ("rotation", 1)]
    assert before[0].config.steps > 1
    for cell in paper.cells(chosen, scale, 2, untimed(tmp_path), str(files)):
        own = str(before[cell.config.seed].folder.path)
        assert cell.config.init == ("" if cell.arm == "supervised" else own)


def test_only_takes_the_cells_that_fit() -> None:
    table = paper.experiment("table1")
    assert {t.name for t, _ in table.cells("svhn-*")} == {"svhn-1000"}
    found = table.cells("*-1000/mean-teacher; cifar100-10000/ft-ccl, 2 teachers")
    assert [(t.name, a.name) for t, a in found] == [
        ("cifar10-1000", "mean-teacher"),
        ("cifar100-10000", "ft-ccl, 2 teachers"),
        ("svhn-1000", "mean-teacher"),
    ]
    assert table.cells("svhn-1000/ft-ccl-2-teachers") == table.cells("svhn-1000/ft-ccl, 2 teachers")
    with pytest.raises(UsageError, match="No run of table1 fits `only` 'svhn-250'"):
        table.cells("svhn-*;svhn-250")


@pytest.mark.usefixtures("real_sizes", "timings")
def test_an_arm_that_is_another_at_this_scale_is_run_once(tmp_path: Path) -> None:
    ablation = paper.experiment("ablation")
    for scale, left_out in ((CPU, "ft-ccl, quick certainty"), (FULL, "ft-ccl, the paper's certainty")):
        plan = Plan(tmp_path / scale.name, scale.label)
        arms = {c.arm for c in paper.cells(paper.chosen(ablation, scale, "svhn-*"), scale, 1, plan, "")}
        assert {a.name for a in ablation.arms} - arms == {left_out}


@pytest.mark.usefixtures("real_sizes", "timings")
def test_a_run_that_two_experiments_need_has_one_folder(tmp_path: Path) -> None:
    def ft(name: str) -> tuple[Config, Path]:
        chosen = paper.chosen(paper.experiment(name), CPU, "cifar10-1000/ft-ccl")
        (cell,) = paper.cells(chosen, CPU, 1, Plan(tmp_path, CPU.label), "")
        return cell.config, cell.folder.path

    assert ft("table1") == ft("uncertainty") == ft("selection") == ft("ablation")


@pytest.mark.usefixtures("real_sizes")
def test_every_method_has_the_same_minutes_rotnet_included(tmp_path: Path, timings: dict[str, float]) -> None:
    chosen = paper.chosen(paper.experiment("table1"), CPU, "svhn-1000")
    plan = Plan(tmp_path, CPU.label)
    before = paper.pretraining_cells(chosen, CPU, 1, plan, "")
    cells = paper.cells(chosen, CPU, 2, plan, "")
    assert timings.pop("rotation") == 0.75
    assert timings.pop("from RotNet") == 2.25
    assert set(timings) == set(METHODS)
    assert set(timings.values()) == {3.0}
    assert {cell.config.width for cell in (*before, *cells)} == {128}
    ratios = {c.config.unlabelled_batch / c.config.labelled_batch for c in cells if c.config.method == "fixmatch"}
    assert ratios == {7.0}  # Sohn et al. 2020
    assert all(cell.config.unlabelled == 0 for cell in cells)  # all of them


def test_of_two_processes_one_plans(
    tiny: Scale, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, timings: dict[str, float]
) -> None:
    """The second waits for the lock, and then finds the plan of the first."""
    settings = {name: value for name, value in tiny.settings.items() if name != "steps"}
    monkeypatch.setitem(scales.SCALES, "cpu", replace(tiny, settings=settings, minutes=0.02))
    words = ("table1", "--only", "cifar10-1000/mean-teacher", "--data-dir", files, "--seeds", 1)
    assert ask(*words, "--out", tmp_path / "first") == 0
    assert timings.pop("mean-teacher") == 0.02
    second = tmp_path / "second"

    @contextmanager
    def waiting(folder: Path, seconds: float = 0.0) -> Iterator[object]:
        with locked(folder, seconds) as lock:
            if folder == second:
                shutil.copy(tmp_path / "first" / "plan.json", second)
            yield lock

    monkeypatch.setattr(cli_paper, "locked", waiting)
    assert ask(*words, "--out", second) == 0
    assert not timings


@pytest.mark.usefixtures("real_sizes")
def test_an_arm_is_timed_once_for_all_seeds_and_commands(tmp_path: Path, timings: dict[str, float]) -> None:
    chosen = paper.chosen(paper.experiment("table1"), CPU, "svhn-1000/ft-ccl; svhn-1000/pi")
    first = paper.cells(chosen, CPU, 2, Plan(tmp_path, CPU.label), "")
    assert {(c.config.method, c.config.seed): c.config.steps for c in first} == {
        ("pi", 0): 301,
        ("pi", 1): 301,
        ("ft-ccl", 0): 302,
        ("ft-ccl", 1): 302,
    }
    timings.clear()
    again = Plan(tmp_path, CPU.label, timing=False)
    assert paper.cells(chosen, CPU, 2, again, "") == first
    more = paper.chosen(paper.experiment("table1"), CPU, "svhn-1000/ft-ccl; svhn-1000/vat*")
    assert {c.arm for c in paper.cells(more, CPU, 1, again, "")} == {"ft-ccl"}  # vat is not timed only to be shown
    assert not timings
    with pytest.raises(UsageError, match=r"holds runs of cpu-3min, not of cpu-5min: give another `out`\."):
        Plan(tmp_path, replace(CPU, minutes=5).label)
    (tmp_path / "plan.json").write_text("{}")
    with pytest.raises(UsageError, match="is not as certus wrote it"):
        Plan(tmp_path, CPU.label)


@pytest.mark.usefixtures("tiny")
def test_selection_end_to_end_and_again(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "runs"
    only = ("--only", "cifar10-1000/ft-ccl;cifar10-1000/ft-ccl, random ranks", "--data-dir", files, "--out", out)
    with monkeypatch.context() as whole:
        whole.setattr(cli_paper, "write_report", write_report)
        assert ask("selection", *only) == 0
    printed = capsys.readouterr().out
    assert "14.14 ± 0.46" in printed
    assert "sprint of width 2 with Muon" in printed.replace("\n", " ")
    assert "preliminary" in printed  # two seeds
    folder = RunFolder(out / "cifar10-1000" / "ft-ccl-seed1")
    table = json.loads((out / "selection" / "results.json").read_text())
    errors = table["tasks"]["cifar10-1000"]["arms"]["ft-ccl"]["test_error"]
    assert errors["1"] == folder.load_result()["test_error"]
    last = table["tasks"]["cifar10-1000"]["selection"]["ft-ccl"]["moments"][-1]
    lines = [
        RunRecord(RunFolder(out / "cifar10-1000" / f"ft-ccl-seed{s}"), folder.load_config()).lines[-1] for s in (0, 1)
    ]
    assert last["all"] == pytest.approx(
        100 * np.mean([li["targets"]["consistency"]["accuracy"]["all"] for li in lines])
    )
    assert last["loss"] == pytest.approx(np.mean([li["losses"]["consistency"] for li in lines]))
    assert (out / "selection" / "cifar10-1000" / "report.html").is_file()
    assert list((out / "selection" / "cifar10-1000" / "figures").glob("*.svg"))

    written = folder.result.stat().st_mtime_ns
    (out / "cifar10-1000" / "ft-ccl-random-ranks-seed0" / "result.json").unlink()  # as if it had been stopped
    assert ask("selection", *only, "--finished", "--json") == 0
    found = json.loads(capsys.readouterr().out)["tasks"]["cifar10-1000"]
    assert [v["n"] for v in found["arms"].values()] == [2, 1]
    assert "1 to 2 seeds instead of 5" in found["description"]
    names = "cifar10-1000/ft-ccl; cifar10-1000/ft-ccl, random ranks"
    assert found["command"] == f"certus paper selection --scale cpu --only '{names}' --seeds 2"
    config = folder.config.read_text()
    folder.config.write_text(config.replace("learning_rate = 0.1", "learning_rate = 0.2"))
    assert ask("selection", *only, "--finished", "--json") == 1  # it is named, and the others are shown
    shown = capsys.readouterr()
    assert "cifar10-1000/ft-ccl-seed1 failed: " in shown.err
    assert [v["n"] for v in json.loads(shown.out)["tasks"]["cifar10-1000"]["arms"].values()] == [1, 1]
    folder.config.write_text(config)
    assert ask("selection", *only) == 0
    assert "width 2" in capsys.readouterr().out
    assert folder.result.stat().st_mtime_ns == written
    assert json.loads((out / "selection" / "results.json").read_text()) == table


@pytest.mark.usefixtures("tiny")
def test_uncertainty_is_measured_on_the_unlabelled_images_too(
    files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "runs"
    assert ask("uncertainty", "--only", "cifar10-*", "--data-dir", files, "--out", out, "--seeds", 1, "--json") == 0
    found = json.loads(capsys.readouterr().out)["tasks"]["cifar10-1000"]["uncertainty"]
    assert (found["unlabelled"]["images"], found["test"]["images"]) == (200, 300)
    assert set(found["test"]["metrics"]) == {"pv", "ev", "pe", "mi", "pr", "confidence"}
    assert RunFolder(out / "cifar10-1000" / "ft-ccl-seed0").unlabelled.is_file()


@pytest.mark.usefixtures("tiny")
def test_the_noise_experiment_has_as_many_wrong_labels_as_it_says(files: Path, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    assert ask("noise", "--only", "*-noise50/supervised", "--data-dir", files, "--out", out, "--seeds", 1) == 0
    wrong = json.loads((out / "cifar10-4000-noise50" / "supervised-seed0" / "split.json").read_text())["wrong labels"]
    assert 1600 < len(wrong) < 2000  # half of 4,000 drawn anew, of which a tenth is right by chance


def test_runs_of_some_minutes_go_on_as_they_were_planned(
    tiny: Scale, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With real timing; an arm from RotNet is trained after its pretraining."""
    settings = {name: value for name, value in tiny.settings.items() if name != "steps"}
    monkeypatch.setitem(scales.SCALES, "cpu", replace(tiny, settings=settings, minutes=1.0, pretraining=0.25))
    words = ("--minutes", "0.004", "--data-dir", files, "--out", tmp_path, "--seeds", 1)
    words = ("table1", "--only", "cifar10-1000/supervised*", *words)
    assert ask(*words) == 0
    start = RunFolder(tmp_path / "cifar10-rotnet" / "rotation-seed0")
    after = RunFolder(tmp_path / "cifar10-1000" / "supervised-from-RotNet-seed0")
    assert after.load_config().init == str(start.path)
    assert after.config.stat().st_mtime_ns > start.result.stat().st_mtime_ns
    planned = json.loads((tmp_path / "plan.json").read_text())
    assert planned["scale"] == "cpu-0.004min"
    arm = "cifar10-1000/supervised, from RotNet"
    assert planned["arms"][arm]["steps"] == after.load_config().steps == after.load_result()["steps"]
    assert start.load_config().steps == planned["arms"]["cifar10-rotnet"]["steps"]
    assert "Scale cpu-0.004min: every run has 0.004 minutes of one core" in capsys.readouterr().out.replace("\n", " ")

    monkeypatch.setattr(plan, "timed_within", None)  # it is not timed again
    after.result.unlink()  # as if it had been stopped
    assert ask(*words) == 0
    assert after.load_config().steps == planned["arms"][arm]["steps"]
    found = json.loads((tmp_path / "table1" / "results.json").read_text())["tasks"]["cifar10-1000"]
    assert [(name, v["n"]) for name, v in found["arms"].items()] == [("supervised", 1), ("supervised, from RotNet", 1)]
    assert found["command"].startswith(
        "certus paper table1 --scale cpu --minutes 0.004 --only 'cifar10-1000/supervised"
    )
    fewest, most = sorted(planned["arms"][f"cifar10-1000/{name}"]["steps"] for name in found["arms"])
    several = f"{fewest:,} to " * (fewest < most)
    assert found["description"].startswith(f"{several}{most:,} steps, 100 images kept for validation, 1 seed")
    with pytest.raises(UsageError, match=r"holds runs of cpu-0\.004min, not of cpu-1min"):
        ask(*(word for word in words if word not in ("--minutes", "0.004")))


@pytest.mark.usefixtures("real_sizes")
@pytest.mark.parametrize(
    ("counts", "text"),
    [
        ((3, 3), ", 3 seeds instead of 5."),
        ((5, 3, 4), ", 3 to 5 seeds instead of 5."),
        ((1,), ", 1 seed instead of 5."),
        ((5, 5), ", 5 seeds."),
    ],
)
def test_the_description_says_that_there_are_fewer_seeds_than_in_the_paper(counts: tuple[int, ...], text: str) -> None:
    config = FULL.config(Task("svhn", 1000), Arm("supervised"), 0)
    assert paper.describe_task(FULL, [config], counts) == f"300 epochs, 1,000 images kept for validation{text}"


@pytest.mark.usefixtures("tiny")
def test_a_table_of_nothing_is_refused(files: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="None of these runs is finished"):
        ask("noise", "--data-dir", files, "--out", tmp_path, "--finished")
    assert not list(tmp_path.iterdir())


def test_listing_runs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert ask() == 0
    assert "ablation" in capsys.readouterr().out
    assert ask("noise", "--list") == 0
    assert "cifar10-4000-noise20/mean-teacher" in capsys.readouterr().out.splitlines()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("table2",), "experiment"),
        (("table1", "--scale", "huge"), "scale"),
        (("noise", "--seeds", "0"), "`seeds` must be at least 1"),
        (("noise", "--workers", "0"), "`workers` must be at least 1"),
        (("noise", "--data-dir", "/nonexistent"), "nonexistent"),
        (("noise", "--minutes", "0"), "`minutes` must be more than 0"),
        (("noise", "--scale", "full", "--minutes", "3"), "At scale full runs are not limited by `minutes`"),
        (("noise", "--images", "0.2"), "`images` and `noise` are for ladder and map, not for noise"),
        (("ladder", "--images", "much"), "`images` must be numbers with commas between them, but one is 'much'"),
        (("map", "--noise", "2"), "`noise` must be between 0 and 1, but is 2"),
        (("map", "--scale", "cpu"), "map has its own scale: leave `scale` out"),
        (("map", "--minutes", "3"), "At scale images runs are not limited by `minutes`"),
        (("record", "--task", "svhn-250"), "No run of record fits `only` 'svhn-250'"),
        (("record", "--task", "svhn-1000", "--only", "svhn-1000"), "only one of `task` and `only`"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(CertusError, match=message):
        ask(*words)


def run_row(task: str, arm: str, seed: int, error: float) -> dict[str, Any]:
    return {
        "task": task,
        "arm": arm,
        "method": arm.split(",")[0],
        "seed": seed,
        "steps": 100,
        "settings": "width=2",
        "test_error": error,
        "validation_error": error + 1,
        "seconds": 10.0,
        "scale": "cpu",
        "version": "0.1.0",
    }


def test_a_task_s_table_follows_from_its_runs() -> None:
    noise, task = paper.experiment("noise"), Task("cifar10", 4000, 0.5)
    errors = {"supervised": {0: 40.0, 1: 42.0, 2: 41.0}, "mean-teacher": {0: 30.0, 1: 33.0}, "ft-ccl": {}}
    rows = [run_row(task.name, arm, seed, e) for arm, found in errors.items() for seed, e in found.items()]
    records = Records({name: rows if name == "runs" else [] for name in COLUMNS})
    ((found_task, arms),) = tables.tasks_of(noise, CPU, records).items()
    assert found_task == task
    assert [arm.name for arm in arms] == ["supervised", "mean-teacher"]  # ft-ccl has no finished run
    table = tables.arms_summary(noise, task, arms, records)
    assert (table["supervised"]["mean"], table["supervised"]["std"], table["supervised"]["n"]) == (41.0, 1.0, 3)
    difference = paired(errors["mean-teacher"], errors["supervised"])
    assert table["mean-teacher"]["differences"] == {"supervised": asdict(difference)}
    text = tables.errors_table(noise, task, arms, records)
    assert text.heads == (
        *("method", "test error (%)", "n", "difference to supervised", "difference to mean-teacher", "the paper's"),
    )
    assert [row[:3] for row in text.rows] == [
        ("supervised", "41.00 ± 1.00", "3"),
        ("mean-teacher", "31.50 ± 2.12", "2 (preliminary)"),
    ]
    assert text.rows[1][3].startswith("−9.50 [")
    assert [row[-1] for row in text.rows] == ["–", "–"]  # the paper prints no errors under label noise
    clean = tables.errors_table(paper.experiment("table1"), task.plain, arms, renamed(records, task.plain.name))
    assert [row[-1] for row in clean.rows] == ["20.66 ± 0.57", "12.31 ± 0.28"]


def renamed(records: Records, task: str) -> Records:
    return Records({name: [{**row, "task": task} for row in rows] for name, rows in records.tables.items()})
