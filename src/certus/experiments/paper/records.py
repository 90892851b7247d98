"""The records of finished runs as small tables. Tables and figures of an experiment are made from them alone, so that
the CSV files that `publish` writes hold everything behind a published figure."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from certus.config import Config, resolve
from certus.errors import UsageError
from certus.methods import recipe
from certus.report.runs import TASK, flat
from certus.report.text_table import csv_text
from certus.text import from_spreadsheet
from certus.writing import put

Row = dict[str, Any]
CURVE = {"epoch": int, "mean": float, "std": float, "n": int}

# Columns after task and arm. Errors, accuracies and shares are in percent.
COLUMNS: dict[str, dict[str, type]] = {
    "runs": {
        "method": str,
        "seed": int,
        "steps": int,
        "settings": str,
        "test_error": float,
        "validation_error": float,
        "seconds": float,
        "scale": str,
        "version": str,
    },
    "learning-curves": CURVE,  # the validation error
    "losses": {"term": str, **CURVE},  # λ included
    "targets": {"term": str, "quantity": str, **CURVE},
    "target-classes": {"term": str, "class": str, **CURVE},
    "risk-coverage": {"answered": float, "error": float, "n": int},
    "reliability": {"images": int, "confidence": float, "accuracy": float, "ece": float},
    "certainty": {
        "images": str,
        "count": int,
        "uncertainty": str,
        "rank_correlation": float,
        "rank_correlation_std": float,
        "auroc": float,
        "auroc_std": float,
        "n": int,
    },
    "ranked-bins": {"images": str, "uncertainty": str, "bin": int, "accuracy": float},
}


@dataclass(frozen=True)
class Records:
    """Tables by name. Every row names its task and arm; an arm has the same runs in all tables."""

    tables: dict[str, list[Row]]

    @property
    def runs(self) -> list[Row]:
        return self.tables["runs"]

    def select(self, table: str, task: str, arm: str = "") -> list[Row]:
        return [row for row in self.tables[table] if row["task"] == task and arm in ("", row["arm"])]

    def updated(self, newer: Records) -> Records:
        """With the rows of newer arms in place of the older. An older table of an arm stays if the arm has the same
        runs as before and no newer one: not every command records everything."""
        mine, theirs = by_pair(self.runs), by_pair(newer.runs)
        changed = {pair for pair, rows in theirs.items() if mine.get(pair) != rows}
        tables = {}
        for name, rows in newer.tables.items():
            replaced = by_pair(rows).keys() | changed
            kept = [row for row in self.tables[name] if (row["task"], row["arm"]) not in replaced]
            tables[name] = sorted(kept + rows, key=lambda row: (row["task"], row["arm"]))
        return Records(tables)

    def write(self, folder: Path) -> None:
        """A CSV file for each table that has rows."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, rows in self.tables.items():
            kinds = {"task": str, "arm": str, **COLUMNS[name]}
            digits = 17 if name == "runs" else 5  # all, or enough for a curve
            cells = [[cell_text(row[column], kind, digits) for column, kind in kinds.items()] for row in rows]
            if rows:
                put(folder / f"{name}.csv", csv_text(list(kinds), cells))
            else:
                (folder / f"{name}.csv").unlink(missing_ok=True)

    @classmethod
    def read(cls, folder: Path) -> Records:
        """What `write` has written; a missing file is an empty table."""
        tables = {}
        for name, columns in COLUMNS.items():
            path, kinds = folder / f"{name}.csv", {"task": str, "arm": str, **columns}
            rows = []
            try:
                if path.exists():
                    with path.open(newline="", encoding="utf-8") as file:
                        rows = list(csv.DictReader(file))
                tables[name] = [{c: value_of(row[c], kind) for c, kind in kinds.items()} for row in rows]
            except (KeyError, TypeError, ValueError, OSError, csv.Error):
                raise UsageError(
                    f"{path} is not a table that `certus paper` can add to: move it, or publish to another folder."
                ) from None
        return cls(tables)


def by_pair(rows: Iterable[Row]) -> dict[tuple[str, str], list[Row]]:
    """By task and arm."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        found.setdefault((row["task"], row["arm"]), []).append(row)
    return found


def cell_text(value: Any, kind: type, digits: int) -> str:
    if value is None:
        return ""
    return str(kind(value)) if kind is not float else repr(value) if digits > 15 else f"{value:.{digits}g}"


def value_of(text: str | None, kind: type) -> Any:
    if text is None:
        raise ValueError("The line is too short.")
    if kind is str:
        return from_spreadsheet(text)
    return kind(text) if text else None


def settings_text(config: Config) -> str:
    """The network, and what differs from the defaults for it, the method and the data set: `network=cnn13 width=16`.

    Data, labels, label noise, method, seed and steps have their own columns."""
    named = {"data": config.data, "method": config.method, "network": config.network}
    usual = flat(resolve(named)) | {"network": ""}
    own = {k: v for k, v in flat(config).items() if k not in (*TASK, "method", "steps") and v != usual[k]}
    if "init" in own:
        own["init"] = ",".join(Path(start).name for start in own["init"].split(","))  # not the folders of this machine
    return " ".join(f"{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in own.items())


def config_of(row: Row, data: str, labels: int, label_noise: float) -> Config:
    """The settings of a run from its row; data, labels and label noise are its task's."""

    def value(text: str) -> Any:
        try:
            return json.loads(text)
        except ValueError:
            return text

    own = {name: value(text) for name, _, text in (word.partition("=") for word in row["settings"].split())}
    known = recipe(row["method"]).defaults()
    return resolve(
        {
            **{name: value for name, value in own.items() if name not in known},
            "data": data,
            "labels": labels,
            "label_noise": label_noise,
            "threads": 1,
            "method": row["method"],
            "seed": row["seed"],
            "steps": row["steps"],
            "options": {name: value for name, value in own.items() if name in known},
        }
    )
