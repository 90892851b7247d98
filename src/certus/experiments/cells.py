"""A cell is one run of a comparison or an experiment: an arm at one seed, and the folder that it is trained in."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from certus.config import Config
from certus.errors import CertusError, UsageError
from certus.report.runs import RunRecord
from certus.training.run_folder import RunFolder

notices = logging.getLogger("certus")
Results = Mapping[str, Mapping[str, Any]]  # what result.json holds, by the name of the cell


@dataclass(frozen=True)
class Cell:
    name: str  # unique
    arm: str  # a method with certain options
    config: Config
    folder: RunFolder


def cell_folder(out: Path, arm: str, seed: int) -> RunFolder:
    return RunFolder(out / f"{arm}-seed{seed}")


class OtherSettings(UsageError):
    """The folder of a cell holds a run with other settings."""


def check_folder(cell: Cell) -> None:
    """A run that was stopped is continued, but only with the same settings."""
    if cell.folder.exists() and cell.folder.load_config() != cell.config:
        raise OtherSettings(
            f"{cell.folder.path} already holds a run with other settings: give another `out`, or remove it."
        )


def finished_cells(cells: Sequence[Cell]) -> tuple[dict[str, dict[str, Any]], dict[str, CertusError]]:
    """The results of the cells that are finished, and why some cannot be used: damaged files, or other settings.

    Refused if every run that is there has other settings: then the command is to blame, not a run.
    """
    results: dict[str, dict[str, Any]] = {}
    failures: dict[str, CertusError] = {}
    there = [cell for cell in cells if cell.folder.exists()]
    for cell in there:
        try:
            check_folder(cell)
            if cell.folder.finished():
                for note in RunRecord(cell.folder, cell.config).read():
                    notices.warning("%s", note)
                results[cell.name] = cell.folder.load_result()
        except CertusError as e:
            failures[cell.name] = e
    if there and all(isinstance(failures.get(cell.name), OtherSettings) for cell in there):
        raise failures[there[0].name]
    return results, failures
