"""A practitioner's day: a folder of pictures in, a trained run, predictions with certainty out."""

from __future__ import annotations

import csv
import json
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import certus
from certus.cli.main import run
from certus.cli.train import class_line
from certus.data.decode import decode
from certus.errors import CertusError, UsageError
from certus.training.run_folder import RunFolder

EXAMPLE = Path(__file__).parents[2] / "examples" / "digits_as_pictures.py"
QUICK = "--width 4 --steps 4 --threads 1 --labelled-batch 10 --unlabelled-batch 20".split()


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the example writes, made smaller, with one file that is no picture."""
    folder = tmp_path_factory.mktemp("own") / "photos"
    argv, sys.argv = sys.argv, [str(EXAMPLE), str(folder)]
    try:
        runpy.run_path(str(EXAMPLE), run_name="__main__")
    finally:
        sys.argv = argv
    for file in sorted((folder / "unlabeled").iterdir())[100:]:
        file.unlink()
    for number in (folder / "test").iterdir():
        for file in sorted(number.iterdir())[5:]:
            file.unlink()
    (folder / "unlabeled" / "broken.png").write_bytes(b"not a picture")
    return folder


@pytest.fixture(scope="module")
def trained(photos: Path) -> Path:
    out = photos.parent / "run"
    assert run(["train", "--data", str(photos), *QUICK, "--size", "16", "--out", str(out)]) == 0
    return out


def test_what_was_seen_is_said_before_training(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(photos.parent)
    assert run(["train", "--data", "photos", *QUICK, "--size", "16", "--out", str(tmp_path / "run")]) == 0
    said = capsys.readouterr().err
    assert "10 classes" in said
    assert "labelled and 100 unlabelled" in said
    assert "used as 16×16" in said
    assert "cannot be read: 1" in said
    assert "broken.png" in said
    assert "4 steps" in said
    assert "broken.png" in (tmp_path / "run" / "skipped.txt").read_text()


def test_all_of_few_labels_are_trained_on_and_all_is_written_down(trained: Path, photos: Path) -> None:
    config = RunFolder(trained).load_config()
    assert (config.size, config.data, config.labels, config.validation) == (16, str(photos), 0, 0)
    split = json.loads((trained / "split.json").read_text())
    assert (len(split["labelled"]), len(split["validation"]), split["unlabelled"]) == (50, 0, 100)
    assert RunFolder(trained).load_result()["test_error"] is not None


def test_another_size_gives_another_run(trained: Path, photos: Path, tmp_path: Path) -> None:
    assert run(["train", "--data", str(photos), *QUICK, "--size", "12", "--out", str(tmp_path / "run")]) == 0
    about = [json.loads((folder / "model.json").read_text())["shape"] for folder in (trained, tmp_path / "run")]
    assert about == [[1, 16, 16], [1, 12, 12]]


def test_predictions_fit_pictures_as_the_run_did(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    photos, rng = tmp_path / "photos", np.random.default_rng(0)
    for i in range(24):
        path = photos / ("a", "b", "unlabeled")[i % 3] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (12, 40, 3), dtype=np.uint8)).save(path)
    answers = {}
    for fit in ("crop", "pad"):
        out = tmp_path / fit
        words = ["--data", str(photos), *QUICK, "--size", "16", "--fit", fit, "--out", str(out)]
        assert run(["train", *words]) == 0
        assert f"{fit}ped to 16×16" in capsys.readouterr().err.replace("padded", "padped")
        assert RunFolder(out).load_config().fit == fit
        table = predicted(out, photos / "a", tmp_path / f"{fit}.csv", "--draws", "0", "--metric", "confidence")
        images = np.stack([decode(path, 16, fit) for path in sorted((photos / "a").iterdir())])
        p = certus.load(out).predict(images, draws=0).probabilities
        assert np.allclose([float(row["confidence"]) for row in table], p.max(1), atol=1e-5)
        assert run(["evaluate", str(out), "--json"]) == 0
        answers[fit] = p
    assert not np.allclose(answers["crop"], answers["pad"], atol=1e-3)


def predicted(trained: Path, place: Path, out: Path, *words: str) -> list[dict[str, str]]:
    assert run(["predict", str(trained), str(place), "--out", str(out), *words]) == 0
    with out.open() as f:
        return list(csv.DictReader(f))


def test_predictions_in_a_stable_order_with_certainty_and_rank(
    trained: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = predicted(trained, photos, tmp_path / "a.csv", "--top", "3", "--metric", "mi")
    assert "broken.png was left out" in capsys.readouterr().err
    files = [row["file"] for row in rows]
    assert files == sorted(files)
    assert len(files) == len(set(files)) == 200
    assert "unlabeled/broken.png" not in files
    assert list(rows[0])[:8] == ["file", "label", "confidence", "pv", "ev", "pe", "mi", "rank"]
    assert list(rows[0])[8:] == ["label_2", "confidence_2", "label_3", "confidence_3"]
    by_rank = sorted(rows, key=lambda row: int(row["rank"]))
    assert [int(row["rank"]) for row in by_rank] == list(range(1, 201))
    assert [float(row["mi"]) for row in by_rank] == sorted(float(row["mi"]) for row in rows)
    assert all(float(row["confidence"]) >= float(row["confidence_2"]) >= float(row["confidence_3"]) for row in rows)
    again = predicted(trained, photos, tmp_path / "b.csv", "--top", "3", "--metric", "mi")
    assert again == rows


def test_the_command_and_python_agree(trained: Path, photos: Path, tmp_path: Path) -> None:
    (row,) = predicted(
        trained,
        photos / "test" / "3" / sorted(p.name for p in (photos / "test" / "3").iterdir())[0],
        tmp_path / "one.csv",
    )
    model = certus.load(trained)
    with Image.open(row["file"]) as image:
        pixels = np.asarray(image.convert("L").resize((16, 16), Image.Resampling.BICUBIC))
    said = model.predict(pixels[None])
    assert said.names == [row["label"]]
    assert said.probabilities.max() == pytest.approx(float(row["confidence"]), abs=0.08)
    assert said.uncertainty.keys() == {"confidence", "pv", "ev", "pe", "mi", "pr"}
    assert said.rank().tolist() == [1]


@pytest.mark.parametrize("suffix", ["json", "parquet"])
def test_other_files_by_their_ending(trained: Path, photos: Path, tmp_path: Path, suffix: str) -> None:
    if suffix == "parquet":
        parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    out = tmp_path / f"p.{suffix}"
    assert run(["predict", str(trained), str(photos / "test" / "0"), "--out", str(out)]) == 0
    rows = json.loads(out.read_text()) if suffix == "json" else parquet.read_table(out).to_pylist()
    assert len(rows) == 5
    assert rows[0]["file"].endswith(".png")
    assert {row["rank"] for row in rows} == {1, 2, 3, 4, 5}


def test_the_summary_names_the_worst_classes(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    errors = RunFolder(trained).load_result()["class_errors"]
    assert list(errors) == [str(i) for i in range(10)]
    assert run(["train", "--resume", str(trained)]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if "classes" in line)
    worst = sorted(errors.values(), reverse=True)[:3]
    assert line.startswith("Highest errors of the 10 classes: ")
    assert [float(part.split()[-2]) for part in line.split(": ")[1].split(";")[0].split(",")] == pytest.approx(worst)
    assert class_line({"cat": 10.0, "dog": 30.0}) == "Error by class: dog 30.0 %, cat 10.0 %; mean 20.00 %"


def test_evaluate_tells_more_than_the_error(trained: Path, photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["evaluate", str(trained), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["error"] == pytest.approx(RunFolder(trained).load_result()["test_error"])
    assert said["images"] == 50
    assert len(said["class_errors"]) == 10
    assert said["risk_coverage"]["share"][-1] == 1.0
    assert said["risk_coverage"]["error"][-1] == pytest.approx(said["error"])
    assert all(said[name] >= 0 for name in ("nll", "brier", "ece"))
    assert run(["evaluate", str(trained), "--data", str(photos / "test")]) == 0
    assert "all its labelled pictures are used" in capsys.readouterr().err


def test_the_model_needs_no_data(trained: Path, tmp_path: Path) -> None:
    import shutil

    moved = tmp_path / "moved"
    shutil.copytree(trained, moved)
    text = (moved / "config.toml").read_text()
    gone = ['data = "/nowhere"' if line.startswith("data =") else line for line in text.splitlines()]
    (moved / "config.toml").write_text("\n".join(gone) + "\n")
    assert len(certus.load(moved).predict(np.zeros((3, 16, 16), np.uint8), draws=0)) == 3


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("predict {run} nowhere", "There is no folder or picture nowhere"),
        ("predict {run} {photos} --out p.txt", "There is no file type '.txt'"),
        ("predict {run} {photos} --metric vp", "There is no metric 'vp'"),
        ("predict {run} {photos} --draws 0 --metric pe", "Without draws there is no pe to rank by"),
        ("predict {run} {photos} --top 0", "--top must be at least 1"),
        ("predict nowhere {photos}", "nowhere holds no run"),
        ("train --data nowhere/", "There is no folder"),
        ("data fetch digits", "needs no download"),
        ("data fetch cifra10", "Did you mean 'cifar10'"),
        ("data get cifar10", "certus data fetch NAME"),
    ],
)
def test_bad_input(words: str, sentence: str, trained: Path, photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(photos.parent)
    with pytest.raises(UsageError) as refused:
        run(words.format(run=trained, photos=photos).split())
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


def test_inputs_of_another_shape_are_refused(trained: Path) -> None:
    model = certus.load(trained)
    with pytest.raises(UsageError, match="do not fit this run"):
        model.predict(np.zeros((1, 8, 8), np.uint8))
    channels_last = model.predict(np.zeros((1, 16, 16, 1), np.uint8), draws=0)
    assert np.array_equal(channels_last.probabilities, model.predict(torch.zeros(1, 1, 16, 16), draws=0).probabilities)


def test_a_run_without_a_checkpoint_cannot_answer(trained: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(trained, tmp_path / "run", ignore=shutil.ignore_patterns("checkpoints"))
    with pytest.raises(CertusError, match="no checkpoint yet"):
        certus.load(tmp_path / "run")


def test_the_rank_by_confidence_puts_the_most_confident_first(trained: Path, photos: Path, tmp_path: Path) -> None:
    rows = predicted(trained, photos / "test", tmp_path / "p.csv", "--metric", "confidence", "--draws", "0")
    by_rank = sorted(rows, key=lambda row: int(row["rank"]))
    assert [float(row["confidence"]) for row in by_rank] == sorted((float(r["confidence"]) for r in rows), reverse=True)
    by_votes = predicted(trained, photos / "test", tmp_path / "p.csv", "--metric", "pr")
    assert sorted(int(row["rank"]) for row in by_votes) == list(range(1, len(rows) + 1))


@pytest.mark.parametrize("each", [1, 3])
def test_one_label_per_class_is_enough(each: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    photos, rng = tmp_path / "photos", np.random.default_rng(0)
    for i in range(2 * each + 20):
        path = photos / ("ab"[i % 2] if i < 2 * each else "unlabeled") / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(path)
    assert run(["train", "--data", str(photos), *QUICK, "--size", "16", "--out", str(tmp_path / "run")]) == 0
    said, result = capsys.readouterr().err, RunFolder(tmp_path / "run").load_result()
    assert f"all {2 * each} are used for training, so this run measures no error" in said
    assert ("A quick linear model" in said) == (each > 1)
    assert (result["validation_error"], result["test_error"], result["class_errors"]) == (None, None, {})
    assert RunFolder(tmp_path / "run").load_config().validation == 0
    assert run(["train", "--resume", str(tmp_path / "run")]) == 0
    assert "No error was measured" in capsys.readouterr().out
