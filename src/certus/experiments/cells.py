"""A cell is one run of a comparison or an experiment: an arm at one seed, and the folder that it is trained in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from certus.config import Config
from certus.errors import UsageError
from certus.training.run_folder import RunFolder

Results = Mapping[str, Mapping[str, Any]]  # what result.json holds, by the name of the cell


@dataclass(frozen=True)
class Cell:
    name: str  # unique
    arm: str  # a method with certain options
    config: Config
    folder: RunFolder


def cell_folder(out: Path, arm: str, seed: int) -> RunFolder:
    return RunFolder(out / f"{arm}-seed{seed}")


def check_folder(cell: Cell) -> None:
    """A run that was stopped is continued, but only with the same settings."""
    if cell.folder.exists() and cell.folder.load_config() != cell.config:
        raise UsageError(
            f"{cell.folder.path} already holds a run with other settings: give another `out`, or remove it."
        )
