"""Answers for other tools."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from certus.cli.answer_files import writer
from certus.errors import UsageError

ROWS = [
    {"file": "a.png", "label": "dog", "confidence": 0.9, "pe": 0.2, "answered": "yes", "rank": 1},
    {"file": "b.png", "label": "cat", "confidence": 0.5, "pe": 0.7, "answered": "no", "rank": 2},
]


def written(kind: str, tmp_path: Path) -> object:
    path = tmp_path / "answers.json"
    writer(path, kind)(path, ROWS, ("cat", "dog"))
    return json.loads(path.read_text())


def test_coco(tmp_path: Path) -> None:
    found = written("coco", tmp_path)
    assert isinstance(found, dict)
    assert found["categories"] == [{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}]
    names = {image["id"]: image["file_name"] for image in found["images"]}
    labels = {c["id"]: c["name"] for c in found["categories"]}
    assert [(names[a["image_id"]], labels[a["category_id"]]) for a in found["annotations"]] == [
        ("a.png", "dog"),
        ("b.png", "cat"),
    ]
    assert found["annotations"][1] == {
        "id": 2,
        "image_id": 2,
        "category_id": 1,
        "score": 0.5,
        "pe": 0.7,
        "answered": "no",
        "rank": 2,
    }


def test_label_studio_has_the_least_certain_first(tmp_path: Path) -> None:
    found = written("label-studio", tmp_path)
    assert isinstance(found, list)
    assert [task["data"]["image"] for task in found] == ["b.png", "a.png"]
    (prediction,) = found[0]["predictions"]
    assert prediction["result"][0]["value"] == {"choices": ["cat"]}
    assert prediction["score"] == 0.5
    assert found[0]["data"]["answered"] == "no"


def test_auto_goes_by_the_ending(tmp_path: Path) -> None:
    assert written("auto", tmp_path) == ROWS
    with pytest.raises(UsageError, match="no file type"):
        writer(tmp_path / "a.txt", "auto")
    with pytest.raises(UsageError, match=r"must end in \.json"):
        writer(tmp_path / "a.csv", "coco")
    with pytest.raises(UsageError, match="no format 'pdf'"):
        writer(tmp_path / "a.json", "pdf")
