"""A cell is one run of a comparison or an experiment: an arm at one seed, and the folder that it is trained in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from certus.config import Config
from certus.errors import UsageError
from certus.report.comparisons import compare_results
from certus.report.runs import Arm, RunRecord
from certus.report.statistics import Comparison
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


def by_arm(cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    """In the order of their first cells."""
    found: dict[str, list[Cell]] = {}
    for cell in cells:
        found.setdefault(cell.arm, []).append(cell)
    return found


def finished_arms(cells: Sequence[Cell], results: Results) -> list[Arm]:
    """The arms that have a result, each with its finished runs."""
    finished = [cell for cell in cells if cell.name in results]
    return [Arm(name, tuple(RunRecord(c.folder, c.config) for c in group)) for name, group in by_arm(finished).items()]


def compare_cells(cells: Sequence[Cell], results: Results) -> Comparison:
    """Of one task; an arm without a result is a row without errors."""
    return compare_results(
        {
            name: (group[0].config, {c.config.seed: results[c.name] for c in group if c.name in results})
            for name, group in by_arm(cells).items()
        }
    )
