"""Publishing: CSV files that hold everything behind the pages, and pages that follow from the CSV files."""

from __future__ import annotations

import csv
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.image import imread

from certus.cli import main as cli
from certus.config import resolve
from certus.errors import UsageError
from certus.experiments import paper
from certus.experiments.paper import Scale, Task, scales
from certus.experiments.paper.records import COLUMNS, Records, config_of, settings_text
from certus.training.run_folder import RunFolder


def ask(*words: object) -> int:
    return cli.run(["paper", *map(str, words)])


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def pairs(folder: Path) -> list[tuple[str, str, int]]:
    return [(row["task"], row["arm"], int(row["seed"])) for row in read(folder / "runs.csv")]


VALUES: dict[type, st.SearchStrategy[Any]] = {
    str: st.text("ab, |\"'=\n", max_size=5),
    int: st.integers(0, 10**9),
    float: st.none() | st.floats(-1e6, 1e6),
}
ARMS = st.tuples(st.sampled_from(["svhn-1000", "cifar10-1000"]), st.sampled_from(["ft-ccl", "ft-ccl, random ranks"]))


@st.composite
def many_records(draw: st.DrawFn) -> Records:
    tables: dict[str, list[dict[str, Any]]] = {}
    for name, columns in COLUMNS.items():
        tables[name] = []
        for task, arm in draw(st.lists(ARMS, max_size=3)):
            values = {column: draw(VALUES[kind]) for column, kind in columns.items()}
            tables[name].append({"task": task, "arm": arm, **values})
    return Records(tables)


@given(many_records())
def test_records_survive_their_csv_files(tmp_path_factory: pytest.TempPathFactory, records: Records) -> None:
    folder = tmp_path_factory.mktemp("records")
    records.write(folder)
    found = Records.read(folder)
    assert found.runs == records.runs  # to the last digit
    for name, rows in records.tables.items():
        assert [list(row.values()) for row in found.tables[name]] == [
            [pytest.approx(v, rel=1e-4) if isinstance(v, float) else v for v in row.values()] for row in rows
        ]
        assert (folder / f"{name}.csv").is_file() == bool(rows)


@given(many_records(), many_records())
def test_an_update_replaces_whole_arms_and_keeps_the_others(older: Records, newer: Records) -> None:
    found = older.updated(newer)
    fresh = {(row["task"], row["arm"]) for row in newer.runs}

    def rows(records: Records, name: str, pair: tuple[str, str]) -> list[dict[str, Any]]:
        return records.select(name, *pair)

    every = {(row["task"], row["arm"]) for records in (older, newer) for t in records.tables.values() for row in t}
    for pair in every:
        assert rows(found, "runs", pair) == rows(newer if pair in fresh else older, "runs", pair)
        same = pair not in fresh or rows(older, "runs", pair) == rows(newer, "runs", pair)
        for name in COLUMNS:
            expected = rows(newer, name, pair) or (rows(older, name, pair) if same else [])
            assert rows(found, name, pair) == expected
    assert newer.updated(newer).tables == {
        name: sorted(t, key=lambda row: (row["task"], row["arm"])) for name, t in newer.tables.items()
    }


@pytest.mark.usefixtures("real_sizes")
@pytest.mark.parametrize("scale", scales.SCALES.values(), ids=scales.SCALES)
def test_a_row_has_all_settings_of_its_run(scale: Scale) -> None:
    for task, arm in paper.chosen(paper.experiment("table1"), scale, "svhn-1000"):
        config = scale.config(task, arm, 3)
        row = {"method": arm.method, "seed": 3, "steps": config.steps, "settings": settings_text(config)}
        again = config_of(row, task.data, task.labels, task.noise)
        assert replace(again, device=config.device) == config


def test_settings_are_those_that_differ_from_the_method_s_defaults() -> None:
    named = {"data": "cifar10", "method": "ft-ccl", "network": "cnn13"}
    plain = resolve({**named, "seed": 2, "labels": 1000, "steps": 7})
    assert settings_text(plain) == "network=cnn13"
    other = resolve({**named, "width": 16, "init": "/machine/runs/rotation-seed0"})
    other = replace(other, options={**other.options, "hard": False, "draws": "independent:5", "weight": 6.0})
    assert (
        settings_text(other) == "network=cnn13 width=16 init=rotation-seed0 weight=6.0 draws=independent:5 hard=false"
    )


@pytest.mark.usefixtures("tiny")
def test_what_is_published_follows_from_the_runs_and_names_no_machine(files: Path, tmp_path: Path) -> None:
    out, public = tmp_path / "runs", tmp_path / "results"
    only = "cifar10-1000/ft-ccl; cifar10-1000/mean-teacher"
    words = ("--only", only, "--data-dir", files, "--out", out, "--publish", public)
    assert ask("selection", *words) == 0
    kinds = ("runs", "learning-curves", "losses", "targets", "target-classes", "risk-coverage", "reliability")
    assert {p.name for p in public.iterdir()} == {f"{k}.csv" for k in kinds} | {"selection.md", "selection.png"}
    assert imread(public / "selection.png").shape[2] == 4
    texts = [p.read_text() for p in public.iterdir() if p.suffix != ".png"]
    assert not [t for t in texts if str(tmp_path) in t or str(files) in t]

    folders = {s: RunFolder(out / "cifar10-1000" / f"ft-ccl-seed{s}") for s in (0, 1)}
    runs = [row for row in read(public / "runs.csv") if row["arm"] == "ft-ccl"]
    for row in runs:
        folder = folders[int(row["seed"])]
        result, config = folder.load_result(), folder.load_config()
        assert float(row["test_error"]) == result["test_error"]
        assert float(row["validation_error"]) == result["validation_error"]
        assert (int(row["steps"]), float(row["seconds"]), row["scale"]) == (30, result["seconds"], "cpu")
        typed = {**row, "seed": int(row["seed"]), "steps": int(row["steps"])}
        again = config_of(typed, "cifar10", 1000, 0.0)
        assert replace(again, data_dir=config.data_dir, device=config.device) == config
    lines = [folder.load_metrics() for folder in folders.values()]

    def of(table: str, **wanted: str) -> list[dict[str, str]]:
        rows = [row for row in read(public / f"{table}.csv") if row["arm"] == "ft-ccl"]
        return [row for row in rows if all(row[k] == v for k, v in wanted.items())]

    def naive(row: dict[str, str], pick: Any) -> Any:
        values = [
            v for run in lines for line in run if line["epoch"] == int(row["epoch"]) and (v := pick(line)) is not None
        ]
        assert int(row["n"]) == len(values)
        return pytest.approx((statistics.fmean(values), statistics.stdev(values)), rel=1e-3, abs=1e-3)

    epochs = len(lines[0])
    curves = (
        (of("learning-curves"), lambda li: li["validation_error"]),
        (of("losses", term="consistency"), lambda li: li["losses"]["consistency"]),
        (of("targets", quantity="kept"), lambda li: 100 * li["targets"]["consistency"]["kept"]["all"]),
        (of("targets", quantity="all right"), lambda li: 100 * li["targets"]["consistency"]["accuracy"]["all"]),
        (
            of("targets", quantity="kept of the unlabelled"),
            lambda li: 100 * sum(li["targets"]["consistency"]["classes"]) / (20 * steps(lines[0], li)),
        ),
        (
            [r for r in of("target-classes", **{"class": "shade 3"}) if r["n"] == "2"],
            lambda li: share(li["targets"]["consistency"]["classes"], 3),
        ),
    )
    for rows, pick in curves:
        assert rows
        assert len(rows) <= epochs
        for row in rows:
            assert (float(row["mean"]), float(row["std"])) == naive(row, pick)
    last = of("risk-coverage")[-1]
    assert float(last["answered"]) == 100
    assert float(last["error"]) == pytest.approx(statistics.fmean(float(r["test_error"]) for r in runs), rel=1e-4)
    page = (public / "selection.md").read_text()
    errors = [float(row["test_error"]) for row in runs]
    cells = f"| ft-ccl | {statistics.fmean(errors):.2f} ± {statistics.stdev(errors):.2f} | 2 (preliminary) |"
    assert cells in page
    assert "![the accuracy of the selected targets and of all targets during training](selection.png)" in page


def steps(lines: list[dict[str, Any]], line: dict[str, Any]) -> int:
    """Of this epoch."""
    before = max((li["step"] for li in lines if li["epoch"] < line["epoch"]), default=0)
    return line["step"] - before


def share(counts: list[int], c: int) -> float | None:
    return 100 * counts[c] / sum(counts) if sum(counts) else None


@pytest.mark.usefixtures("tiny")
def test_other_tasks_and_arms_stay_and_every_page_is_made_anew(files: Path, tmp_path: Path) -> None:
    public = tmp_path / "results"
    words = ("--data-dir", files, "--seeds", 1, "--publish", public)

    def add(experiment: str, out: str, only: str, *more: object) -> str:
        assert ask(experiment, *words, "--out", tmp_path / out, "--only", only, *more) == 0
        return (public / f"{experiment}.md").read_text()

    noise = [f"cifar10-4000-noise{percent}" for percent in (20, 30)]
    first = add("noise", "here", f"{noise[1]}/supervised")
    second = add("noise", "there", f"{noise[0]}/supervised")
    assert pairs(public) == [(noise[0], "supervised", 0), (noise[1], "supervised", 0)]
    own = first[first.index(f"## {noise[1]}") :]
    assert own in second  # as it was
    assert second.index(f"## {noise[0]}") < second.index(f"## {noise[1]}")
    third = add("noise", "there", f"{noise[1]}/ft-ccl")  # of another machine, which has no run of supervised
    assert (noise[1], "ft-ccl", 0) in pairs(public)
    assert own not in third
    assert own.splitlines()[-1] in third  # but for its column of differences, the row is as it was
    before = read(public / "runs.csv")
    add("noise", "here", f"{noise[1]}/supervised", "--seeds", 2)  # the same arm again, with one seed more
    assert pairs(public).count((noise[1], "supervised", 1)) == 1
    assert [row for row in read(public / "runs.csv") if row["seed"] == "0"] == before
    assert "2 (preliminary)" in (public / "noise.md").read_text()

    add("uncertainty", "here", "cifar10-1000")
    certainty = read(public / "certainty.csv")
    assert {row["images"] for row in certainty} == {"unlabelled", "test"}
    assert len(read(public / "ranked-bins.csv")) == 6 * (10 + 10)
    add("selection", "here", "cifar10-1000/ft-ccl")
    assert read(public / "certainty.csv") == certainty
    add("selection", "elsewhere", "cifar10-1000/ft-ccl", "--seeds", 2)  # other runs: their certainty is not known
    assert not (public / "certainty.csv").exists()
    assert "AUROC" not in (public / "uncertainty.md").read_text()


@pytest.mark.usefixtures("tiny")
def test_a_folder_holds_one_scale_and_only_tables_that_can_be_read(
    tiny: Scale, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    public = tmp_path / "results"
    words = ("--only", "*-noise30/supervised", "--data-dir", files, "--seeds", 1, "--publish", public)
    assert ask("noise", *words, "--out", tmp_path / "here") == 0
    page = (public / "noise.md").read_text()
    monkeypatch.setitem(scales.SCALES, "short", replace(tiny, name="short"))
    with pytest.raises(UsageError, match="holds runs of scale cpu, and these are of scale short"):
        ask("noise", *words, "--scale", "short", "--out", tmp_path / "short")
    assert not (tmp_path / "short").exists()  # refused before anything is trained
    assert (public / "noise.md").read_text() == page
    for content in (
        "task,arm\na,b\n",
        "nothing\nof this kind\n",
        (public / "runs.csv").read_text() + "a,b,c\n",
        "task,arm\né,b\n",
        "a\0b\nc\n",
    ):
        (public / "runs.csv").write_text(content, encoding="latin-1")
        with pytest.raises(UsageError, match=r"runs\.csv is not a table that `certus paper` can add to"):
            ask("noise", *words, "--out", tmp_path / "here")


def test_tasks_have_names_that_people_read() -> None:
    from certus.experiments.paper.figures import title_of

    assert title_of(Task("cifar10", 4000, 0.5)) == "CIFAR-10, 4,000 labels, 50 % of them random"
    assert title_of(Task("svhn", 1000)) == "SVHN, 1,000 labels"
