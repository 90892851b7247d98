"""Files, folders and classes may have any name: what is trained on them can be asked, reported and read back."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet
import pytest
from builders import write_pictures

from certus.cli.main import main
from certus.data.listing import scan
from certus.text import from_spreadsheet

CLASSES = ("=1+1", "a$\\frac{$b", "[bold]", "caf\udce9")
QUICK = "--steps 2 --width 4 --labelled-batch 4 --unlabelled-batch 4 --threads 1 --validation 0".split()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """photos/ has odd classes and files; [bold]/ is a run on them."""
    root = tmp_path_factory.mktemp("[red]")
    for name in CLASSES:
        write_pictures(root / "photos" / name, "-1.png", "@b.png", "x\udcff.png", ":smile:.png")
    write_pictures(root / "photos" / "unlabelled", *(f"{c}.png" for c in "abcdefgh"))
    for name in CLASSES:
        write_pictures(root / "photos" / "test" / name, "t.png")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CERTUS_CACHE", str(root / "cache"))
        assert main(["train", "--data", str(root / "photos"), *QUICK, "--out", str(root / "[bold]")]) == 0
    return root


@pytest.mark.parametrize("ending", ["csv", "json", "parquet"])
def test_predict(root: Path, ending: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = root / f"answers.{ending}"
    assert main(["predict", str(root / "[bold]"), str(root / "photos"), "--out", str(out), "--top", "2"]) == 0
    assert str(out) in capsys.readouterr().out
    if ending == "csv":
        with out.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        assert not any(cell[:1] in "=+-@" for row in rows for cell in (row["file"], row["label"], row["label_2"]))
    elif ending == "json":
        rows = json.loads(out.read_text(encoding="utf-8"))
        assert all((root / "photos" / row["file"]).is_file() for row in rows)
    else:
        rows = pyarrow.parquet.read_table(out).to_pylist()
    assert len(rows) == 28
    assert {from_spreadsheet(row["label"]) for row in rows} <= {*CLASSES, "caf\\udce9"}


def test_answers_serve_as_labels(root: Path, tmp_path: Path) -> None:
    """A table of answers beside the pictures is read back with the same names."""
    write_pictures(tmp_path, "a.png", "-b.png")
    (tmp_path / "a.png").rename(tmp_path / "=a.png")
    assert main(["predict", str(root / "[bold]"), str(tmp_path), "--out", str(tmp_path / "answers.csv")]) == 0
    text = (tmp_path / "answers.csv").read_text(encoding="utf-8")
    assert "\n./=a.png," in text
    assert "\n./-b.png," in text
    (tmp_path / "labels.csv").write_text("file,label\n./=a.png,'=1+1\n./-b.png,'@x\n")
    assert scan(tmp_path).classes == ("=1+1", "@x")


def test_report_and_evaluate(root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CERTUS_CACHE", str(root / "cache"))
    out, figures = root / "page[bold].html", root / "figures"
    assert main(["report", str(root / "[bold]"), "--out", str(out), "--figures", str(figures)]) == 0
    page = out.read_text(encoding="utf-8")
    assert all(name in page for name in ("=1+1", "a$\\frac{$b", "[bold]", "caf\\udce9"))
    cells = [
        cell
        for file in figures.glob("*.csv")
        for row in csv.reader(file.read_text(encoding="utf-8").splitlines())
        for cell in row
    ]
    assert "'=1+1" in cells
    assert "=1+1" not in cells
    assert main(["evaluate", str(root / "[bold]"), "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out.splitlines()[-1])["class_errors"]) == set(CLASSES)


def test_no_picture_can_be_read(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.png").write_bytes(b"not a picture")
    (tmp_path / "b.png").write_bytes(b"")
    assert main(["predict", str(root / "[bold]"), str(tmp_path), "--out", str(tmp_path / "answers.csv")]) == 1
    *each, last = capsys.readouterr().err.splitlines()
    assert f"certus: {tmp_path / 'b.png'} was left out: the file is empty" in each
    assert last.startswith(f"certus: No picture in {tmp_path} can be read")
    assert not (tmp_path / "answers.csv").exists()


def test_what_is_no_file_is_left_out_by_name(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_pictures(tmp_path, "a.png")
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "endless.png").symlink_to("/dev/zero")
    out = tmp_path / "answers.csv"
    assert main(["predict", str(root / "[bold]"), str(tmp_path), "--out", str(out)]) == 0
    lines = capsys.readouterr().err.splitlines()
    for name in ("pipe.png", "endless.png"):
        assert f"certus: {tmp_path / name} was left out: it is not a regular file" in lines
    assert main(["predict", str(root / "[bold]"), str(tmp_path / "pipe.png"), "--out", str(out)]) == 1
    assert "it is not a regular file" in capsys.readouterr().err


def test_an_ascii_locale(tmp_path: Path) -> None:
    environment = {**os.environ, "LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    words = ["train", "--data", "moons", *QUICK, "--out", "rün🐱[bold]"]
    done = subprocess.run(
        [sys.executable, "-m", "certus", *words], cwd=tmp_path, env=environment, capture_output=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert rb"Run: r" in done.stdout
    assert b"[bold]" in done.stdout
    assert [os.fsencode(path.name) for path in tmp_path.iterdir()] == ["rün🐱[bold]".encode()]
