"""The runs of an experiment at a scale: their folders, and the pretraining that some start from.

All experiments keep their runs in one tree, OUT/TASK/ARM-seedN, so that a run that two of them need is trained once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from certus.config import Config
from certus.experiments.cells import Cell, cell_folder
from certus.experiments.paper.experiments import RANDOM_WEIGHTS
from certus.experiments.paper.scales import Scale
from certus.experiments.paper.tasks import Arm, Experiment, Task
from certus.experiments.plan import Plan, Untimed
from certus.training.run_folder import RunFolder


def chosen(experiment: Experiment, scale: Scale, only: str = "") -> list[tuple[Task, Arm]]:
    """The tasks and arms of an experiment at this scale. As in the paper, CCL's arms of table 1 start from RotNet at
    the full scale."""

    def started(arm: Arm) -> Arm:
        return replace(arm, rotnet=arm.rotnet or ("ccl" in arm.method and arm.variant != RANDOM_WEIGHTS))

    cells = experiment.cells(only)
    if experiment.name != "table1" or not scale.rotnet:
        return cells
    found = [(task, started(arm)) for task, arm in cells]
    return list({(task.name, arm.name): (task, arm) for task, arm in found}.values())


OTHERS = 1000  # seeds of the RotNet runs of a circle's other students: seed + 1000, + 2000, …


def start_folders(out: Path, data: str, seed: int, students: int) -> dict[int, Path]:
    """The RotNet runs that the students start from, each its own, by their seeds."""
    seeds = [seed + OTHERS * i for i in range(students)]
    return {s: (out / f"{data}-rotnet" / f"rotation-seed{s}").resolve() for s in seeds}


def pretraining_cells(
    chosen: Sequence[tuple[Task, Arm]], scale: Scale, seeds: int, plan: Plan, data_dir: str
) -> list[Cell]:
    """The RotNet runs that some arms start from."""
    found = []
    students: dict[str, int] = {}  # by data set
    for task, arm in chosen:
        if arm.rotnet:
            students[task.data] = max(arm.students, students.get(task.data, 1))
    for data, most in students.items():
        for first in range(seeds):
            for seed, folder in start_folders(plan.out, data, first, most).items():
                config = scale.rotation(data, seed, data_dir)
                config = plan.complete(
                    f"{data}-rotnet", config, lambda: scale.cores * scale.pretraining * scale.minutes
                )
                found.append(Cell(f"{data}/rotation-seed{seed}", "rotation", config, RunFolder(folder)))
    return found


def cells(chosen: Sequence[tuple[Task, Arm]], scale: Scale, seeds: int, plan: Plan, data_dir: str) -> list[Cell]:
    """Every run. An arm with the same settings as an earlier one on the same task is left out, and without timing every
    arm that was never trained here."""
    found: list[Cell] = []
    given: list[tuple[Task, Config]] = []
    for seed in range(seeds):
        for task, arm in chosen:
            folder = cell_folder(plan.out / task.name, arm.folder, seed)
            starts = start_folders(plan.out, task.data, seed, arm.students).values() if arm.rotnet else ()
            config = scale.config(task, arm, seed, data_dir, ",".join(map(str, starts)))
            if (task, config) in given:
                continue
            given.append((task, config))
            try:
                name = f"{task.name}/{arm.name}"
                config = plan.complete(name, config, lambda t=task, a=arm: scale.minutes_of(t, a, data_dir))  # type: ignore[misc]
            except Untimed:
                continue
            found.append(Cell(f"{task.name}/{folder.path.name}", arm.name, config, folder))
    return found
