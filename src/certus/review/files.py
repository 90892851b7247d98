"""A queue as a file: a table in the columns of labels.csv, or tasks with predictions for Label Studio."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from certus.data import is_folder
from certus.errors import UsageError, unknown
from certus.report.text_table import csv_text
from certus.review.queues import Item
from certus.review.reviewed import Reviewed
from certus.text import for_spreadsheet, printable

FORMATS = {"csv": ".csv", "label-studio": ".json"}
COLUMNS = ("file", "label", "answer", "sure", "reason")


def format_of(out: Path, named: str = "") -> str:
    """The format that is named, or else that of the file's ending."""
    if named:
        if named not in FORMATS:
            raise unknown("format", named, FORMATS)
        return named
    found = {suffix: name for name, suffix in FORMATS.items()}
    if out.suffix not in found:
        raise unknown("file type", out.suffix or "(none)", found)
    return found[out.suffix]


def table(found: Reviewed, items: Sequence[Item]) -> str:
    """A line for each picture. The label is the given one, or empty for a person to fill in."""
    rows = []
    for item in items:
        name = found.pictures[item.picture]
        file = f"./{name}" if for_spreadsheet(name)[0] == "'" else name
        label = "" if item.given is None else found.classes[item.given]
        rows.append((file, label, found.classes[item.answer], f"{item.sure:.4f}", item.reason))
    return csv_text(COLUMNS, rows)


def tasks(found: Reviewed, items: Sequence[Item], prefix: str | None = None) -> str:
    """Label Studio's JSON: each picture with the model's answer. The lowest score comes first there, so it is the
    position in the queue from 0 to 1.

    `prefix` stands before each file's name; without it, Label Studio reads the folder as a local file.
    """
    if not is_folder(found.config.data):
        raise UsageError(
            f"Label Studio shows picture files, but {found.config.data} is a data set without any: write a .csv file."
        )
    if prefix is None:
        prefix = f"/data/local-files/?d={quote(str(Path(found.config.data).resolve()).lstrip('/'))}/"
    made = [
        {
            "data": {"image": prefix + quote(found.pictures[item.picture].encode("utf-8", "surrogateescape"))},
            "meta": {"reason": printable(item.reason)}
            | ({} if item.given is None else {"label": printable(found.classes[item.given])}),
            "predictions": [
                {
                    "model_version": f"certus {printable(found.model.folder)}",
                    "score": round(i / len(items), 6),
                    "result": [choice(printable(found.classes[item.answer]))],
                }
            ],
        }
        for i, item in enumerate(items)
    ]
    return json.dumps(made, indent=1, ensure_ascii=False) + "\n"


def choice(name: str) -> dict[str, Any]:
    """Of the class with this name, in a labelling interface with <Image name="image"> and <Choices name="class">."""
    return {"from_name": "class", "to_name": "image", "type": "choices", "value": {"choices": [name]}}
