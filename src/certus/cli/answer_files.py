"""Files of answers: tables, and what other tools read."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from certus import __version__
from certus.errors import UsageError, unknown
from certus.report.text_table import csv_text
from certus.text import for_spreadsheet, printable
from certus.writing import put

Row = dict[str, Any]
Writer = Callable[[Path, list[Row], Sequence[str]], None]
NUMBERS = ("confidence", "pv", "ev", "pe", "mi", "witness", "answered", "rank")


def writer(path: Path, kind: str) -> Writer:
    """What writes this file: by its ending, or by the tool that it is for."""
    if kind == "auto":
        if path.suffix not in TABLES:
            raise unknown("file type", path.suffix or "(none)", TABLES)
        return TABLES[path.suffix]
    if kind not in TOOLS:
        raise unknown("format", kind, ("auto", *TOOLS))
    if path.suffix != ".json":
        raise UsageError(f"The format {kind} is JSON, so `out` must end in .json, but is {path}.")
    return TOOLS[kind]


def write_csv(path: Path, rows: list[Row], classes: Sequence[str]) -> None:  # noqa: ARG001
    """A name that a spreadsheet would take for a formula gets ./ or an apostrophe, which labels.csv may have too."""
    files = [f"./{row['file']}" if for_spreadsheet(row["file"])[0] == "'" else row["file"] for row in rows]
    put(path, csv_text(list(rows[0]), ([file, *list(row.values())[1:]] for file, row in zip(files, rows, strict=True))))


def write_json(path: Path, rows: list[Row], classes: Sequence[str]) -> None:  # noqa: ARG001
    put(path, json.dumps(rows, indent=1, ensure_ascii=False) + "\n")


def write_parquet(path: Path, rows: list[Row], classes: Sequence[str]) -> None:  # noqa: ARG001
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise UsageError(
            "Writing .parquet needs pyarrow: pip install 'certus-ssl[parquet]', or write .csv or .json."
        ) from None
    legible = [{k: printable(v) if isinstance(v, str) else v for k, v in row.items()} for row in rows]
    put(path, lambda file: pyarrow.parquet.write_table(pyarrow.Table.from_pylist(legible), file))


def write_coco(path: Path, rows: list[Row], classes: Sequence[str]) -> None:
    """In the way of COCO: images, categories, and one annotation for each image, without a box."""
    numbers = {name: i for i, name in enumerate(classes, 1)}
    record: dict[str, Any] = {
        "info": {"description": "answers of certus", "version": __version__},
        "images": [{"id": i, "file_name": row["file"]} for i, row in enumerate(rows, 1)],
        "categories": [{"id": i, "name": name} for name, i in numbers.items()],
        "annotations": [
            {"id": i, "image_id": i, "category_id": numbers[row["label"]], "score": row["confidence"], **certainty(row)}
            for i, row in enumerate(rows, 1)
        ],
    }
    put(path, json.dumps(record, indent=1, ensure_ascii=False) + "\n")


def write_tasks(path: Path, rows: list[Row], classes: Sequence[str]) -> None:  # noqa: ARG001
    """Tasks of Label Studio with a prediction each, for `<Choices name="choice" toName="image">`; the least certain
    first, because their labels teach most."""
    tasks: list[dict[str, Any]] = [
        {
            "data": {"image": row["file"]} | certainty(row),
            "predictions": [
                {
                    "model_version": f"certus {__version__}",
                    "score": row["confidence"],
                    "result": [
                        {
                            "from_name": "choice",
                            "to_name": "image",
                            "type": "choices",
                            "value": {"choices": [row["label"]]},
                        }
                    ],
                }
            ],
        }
        for row in sorted(rows, key=lambda row: -row["rank"])
    ]
    put(path, json.dumps(tasks, indent=1, ensure_ascii=False) + "\n")


def certainty(row: Row) -> Row:
    return {name: row[name] for name in NUMBERS if name in row and name != "confidence"}


TABLES: dict[str, Writer] = {".csv": write_csv, ".json": write_json, ".parquet": write_parquet}
TOOLS: dict[str, Writer] = {"coco": write_coco, "label-studio": write_tasks}
