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


def finished_cells(cells: Sequence[Cell]) -> tuple[dict[str, dict[str, Any]], dict[str, CertusError]]:
    """The results of the cells that are finished, and why some cannot be used: damaged files, or other settings.

    Refused if every run that is there has other settings: then the command is to blame, not a run.
    """
    results: dict[str, dict[str, Any]] = {}
    failures: dict[str, CertusError] = {}
    there = [cell for cell in cells if cell.folder.exists()]
    other = 0
    for cell in there:
        try:
            if cell.folder.load_config() != cell.config:
                other += 1
                failures[cell.name] = UsageError(
                    f"{cell.folder.path} already holds a run with other settings: give another `out`, or remove it."
                )
            elif cell.folder.finished():
                run = RunRecord(cell.folder, cell.config)
                for note in run.read():
                    notices.warning("%s", note)
                results[cell.name] = run.folder.load_result()
        except CertusError as e:
            failures[cell.name] = e
    if other and other == len(there):
        raise failures[there[0].name]
    return results, failures
