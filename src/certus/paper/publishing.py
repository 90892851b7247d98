"""What is worth keeping of an experiment where others can read it: small files, no weights, no place of a machine."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path

from certus.compare import Cell
from certus.folder import Folder, put
from certus.paper.experiments import Experiment


def publish(experiment: Experiment, cells: Sequence[Cell], made: Path, where: Path) -> None:
    """Copy each run's settings, classes, metrics and result to WHERE/runs, and the tables and figures it is about."""
    for cell in cells:
        target = Folder(where / "runs" / cell.folder.path.parent.name / cell.folder.path.name)
        target.path.mkdir(parents=True, exist_ok=True)
        put(target.config, replace(cell.config, data_dir="", init=Path(cell.config.init).name).text())
        for source in (cell.folder.model, cell.folder.metrics, cell.folder.result):
            put(target.path / source.name, source.read_text())
    out = where / experiment.name
    for file in sorted(made.rglob("*")):
        table = file.parent == made and file.suffix in (".json", ".md")
        figure = file.suffix in (".png", ".csv") and any(fnmatch(file.stem, name) for name in experiment.figures)
        if table or figure:
            copy = out / Path(*(part for part in file.relative_to(made).parts if part != "figures"))
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
