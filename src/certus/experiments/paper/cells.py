"""An experiment at a scale as runs: where each lies, what it starts from, in which order they are trained.

Every experiment keeps its runs in one tree, OUT/TASK/ARM-seedN, so that a run that two of them need is trained once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from certus.experiments.compare import Cell, cell_folder
from certus.experiments.paper.experiments import RANDOM_WEIGHTS, Arm, Experiment, Task
from certus.experiments.paper.scales import Scale
from certus.training.run_folder import RunFolder


def chosen(experiment: Experiment, scale: Scale, only: str = "") -> list[tuple[Task, Arm]]:
    """The experiment's cells at this scale: where the paper starts from RotNet, so do CCL's arms of the table."""

    def started(arm: Arm) -> Arm:
        return replace(arm, rotnet=arm.rotnet or ("ccl" in arm.method and arm.told != RANDOM_WEIGHTS))

    cells = experiment.cells(only)
    if experiment.name != "table1" or not scale.rotnet:
        return cells
    found = [(task, started(arm)) for task, arm in cells]
    return list({(task.name, arm.name): (task, arm) for task, arm in found}.values())


def start_folder(out: Path, data: str, seed: int) -> Path:
    return (out / f"{data}-rotnet" / f"rotation-seed{seed}").resolve()


def starts(chosen: Sequence[tuple[Task, Arm]], scale: Scale, seeds: int, out: Path, data_dir: str) -> list[Cell]:
    """The pretraining runs that some arm needs before it can begin."""
    found = []
    for data in dict.fromkeys(task.data for task, arm in chosen if arm.rotnet):
        for seed in range(seeds):
            folder = start_folder(out, data, seed)
            config = scale.rotation(data, seed, data_dir)
            found.append(Cell(f"{data}/rotation-seed{seed}", "rotation", config, RunFolder(folder)))
    return found


def cells(chosen: Sequence[tuple[Task, Arm]], scale: Scale, seeds: int, out: Path, data_dir: str) -> list[Cell]:
    """Every run. An arm that on its task and at this scale is the same as an earlier one is not run twice."""
    found: list[Cell] = []
    for seed in range(seeds):
        for task, arm in chosen:
            folder = cell_folder(out / task.name, arm.folder, seed)
            init = start_folder(out, task.data, seed) if arm.rotnet else None
            config = scale.config(task, arm, seed, data_dir, init)
            if all(config != other.config for other in found):
                found.append(Cell(f"{task.name}/{folder.path.name}", arm.name, config, folder))
    return found
