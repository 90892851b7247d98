"""The rounds of a review: how many labels each run had, and its error on validation images.

A file beside labels.csv has a line of JSON for each run that was reviewed or trained from there.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from certus.training.run_folder import RunFolder
from certus.writing import append

NAME = ".labels.rounds.jsonl"  # a hidden file: not one of the pictures


@dataclass(frozen=True)
class Round:
    run: str
    labels: int  # that it learnt from
    error: float | None  # on validation images, in percent


def round_of(run: Path) -> Round:
    folder = RunFolder(run)
    result = folder.load_result() if folder.finished() else {}
    return Round(str(run.resolve()), len(folder.load_split()["labelled"]), result.get("validation_error"))


def read_rounds(table: Path) -> list[Round]:
    """In the order in which they were made. A line that cannot be read is left out: it only adds a point to a chart."""
    try:
        lines = table.with_name(NAME).read_text().splitlines()
    except (OSError, ValueError):
        return []
    found: dict[str, Round] = {}
    for line in lines:
        try:
            record = json.loads(line)
            known = Round(str(record["run"]), int(record["labels"]), record["error"])
            if known.error is None or isinstance(known.error, (int, float)):
                found[known.run] = known
        except (ValueError, KeyError, TypeError):
            continue
    return list(found.values())


def add_round(table: Path, run: Path) -> list[Round]:
    """With the round of this run."""
    known = round_of(run)
    earlier = read_rounds(table)
    if known in earlier:
        return earlier
    with suppress(OSError):  # pictures that can only be read can be looked at too
        append(table.with_name(NAME), json.dumps(asdict(known)) + "\n")
    return [*(r for r in earlier if r.run != known.run), known]
