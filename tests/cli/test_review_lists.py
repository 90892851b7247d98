"""certus next and certus suspects, as a user types them: a folder of PNGs in, a table or Label Studio's tasks out."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest
from PIL import Image

from certus.cli.main import main, run
from certus.errors import UsageError

QUICK = "--method supervised --network mlp --width 4 --steps 20 --threads 1 --labelled-batch 10 --unlabelled-batch 20"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a folder photos/ with one folder per class; one picture is in the wrong one."""
    home, random = tmp_path_factory.mktemp("lists"), np.random.default_rng(0)
    for i in range(70):
        bright = i % 2
        name = ("dark", "b r")[bright if i != 4 else 1] if i < 40 else "unlabeled"
        path = home / "photos" / name / f"{'=' * (i == 50)}{i:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = random.integers(0, 60, (16, 16, 3)) + 180 * bright * (np.arange(16) < 8)[:, None, None]
        Image.fromarray(pixels.astype(np.uint8)).save(path)
    words = ["train", "--data", str(home / "photos"), *QUICK.split(), "--size", "16", "--out", str(home / "run")]
    assert run(words) == 0
    return home / "run"


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_next_lists_pictures_to_label(trained: Path, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "certus", "next", str(trained), "--n", "30"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = rows(tmp_path / "next.csv")
    assert list(found[0]) == ["file", "label", "answer", "sure", "reason"]
    pictures = trained.parent / "photos"
    assert {(pictures / row["file"]).resolve() for row in found} == set((pictures / "unlabeled").resolve().iterdir())
    assert {row["label"] for row in found} == {""}
    assert {row["answer"] for row in found} <= {"b r", "dark"}
    assert "./" not in found[0]["file"]
    assert "30 of 30 pictures without a label in next.csv" in done.stdout
    assert found[0]["file"] in done.stdout
    assert "and 20 more" in done.stdout
    assert "Move each picture into the folder of its class" in done.stdout
    assert f"certus train --data {pictures}" in done.stdout


@pytest.mark.parametrize("strategy", ["certus", "uncertain", "random"])
def test_the_strategies(strategy: str, trained: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.csv"
    assert run(["next", str(trained), "--n", "5", "--strategy", strategy, "--out", str(out)]) == 0
    first = rows(out)
    assert len({row["file"] for row in first}) == 5
    out.unlink()
    assert run(["next", str(trained), "--n", "5", "--strategy", strategy, "--out", str(out)]) == 0
    assert rows(out) == first


def test_suspects_lists_the_wrong_label(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["suspects", str(trained)]) == 0
    first = rows(tmp_path / "suspects.csv")[0]
    assert (first["file"], first["label"], first["answer"]) == ("b r/04.png", "b r", "dark")
    assert float(first["sure"]) > 0.5
    shown = capsys.readouterr().out
    assert "of 40 labels are suspect" in shown
    assert "labelled b r" in shown


@pytest.mark.parametrize("words", ["--out a.json", "--format label-studio"])
def test_label_studio_gets_tasks_in_our_order(
    words: str, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["next", str(trained), "--n", "6", *words.split()]) == 0
    assert run(["next", str(trained), "--n", "6", "--out", "same.csv"]) == 0
    (path,) = tmp_path.glob("*.json")
    tasks = json.loads(path.read_text())
    by_score = sorted(tasks, key=lambda task: task["predictions"][0]["score"])  # Label Studio: the lowest first
    table = rows(tmp_path / "same.csv")
    start, photos = "/data/local-files/?d=", trained.parent / "photos"
    for task, row in zip(by_score, table, strict=True):
        image = task["data"]["image"]
        assert image.startswith(start)
        assert Path("/" + unquote(image.removeprefix(start))) == (photos / row["file"]).resolve()
        (prediction,) = task["predictions"]
        assert 0 <= prediction["score"] <= 1
        (result,) = prediction["result"]
        assert result["value"] == {"choices": [row["answer"]]}
        assert (result["from_name"], result["to_name"], result["type"]) == ("class", "image", "choices")
    assert len({task["predictions"][0]["score"] for task in tasks}) == 6


def test_another_address_before_the_files(trained: Path, tmp_path: Path) -> None:
    out = tmp_path / "s.json"
    assert run(["suspects", str(trained), "--out", str(out), "--prefix", "https://host/p/"]) == 0
    first = json.loads(out.read_text())[0]
    assert first["data"]["image"] == "https://host/p/b%20r/04.png"
    assert first["meta"]["label"] == "b r"


@pytest.mark.parametrize("command", ["next", "suspects"])
def test_an_existing_file_is_kept(
    command: str, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "mine.csv"
    out.write_text("mine")
    assert main([command, str(trained), "--out", str(out)]) == 2
    assert f"certus: {out} exists already: give another --out, or remove it." in capsys.readouterr().err
    assert out.read_text() == "mine"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("next", "certus next needs the folder of a run"),
        ("suspects", "certus suspects needs the folder of a run"),
        ("next {run} --n 0", "`n` must be"),
        ("next {run} --strategy certius", "Did you mean 'certus'"),
        ("next {run} --out a.txt", "There is no file type '.txt'"),
        ("suspects {run} --format label-studo", "Did you mean 'label-studio'"),
        ("suspects nowhere", "nowhere holds no run"),
    ],
)
def test_bad_input(words: str, sentence: str, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=sentence):
        run(words.format(run=trained).split())
    assert not list(tmp_path.iterdir())


def test_a_data_set_without_files_has_numbers_but_no_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("train --data moons --labels 10 --steps 5 --threads 1 --out run".split()) == 0
    assert run("next run --n 3".split()) == 0
    assert all(row["file"].isdecimal() for row in rows(tmp_path / "next.csv"))
    assert "Then train again" not in capsys.readouterr().out
    with pytest.raises(UsageError, match="Label Studio shows picture files, but moons is a data set without any"):
        run("next run --out next.json".split())


def test_nothing_to_label_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = "train --data moons --method supervised --labels 0 --validation 0 --steps 5 --threads 1 --out run"
    assert run(words.split()) == 0
    assert run(["next", "run"]) == 0
    assert "Every picture of moons has a label, so next.csv is not written." in capsys.readouterr().out
    assert not (tmp_path / "next.csv").exists()
