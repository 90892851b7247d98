"""What is worth keeping of an experiment where others can read it: small files, no weights, no place of a machine."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from certus.errors import UsageError
from certus.experiments.compare import Cell
from certus.experiments.paper.experiments import Experiment
from certus.experiments.paper.tables import markdown
from certus.training.run_folder import RunFolder, put, put_json


def publish(experiment: Experiment, summary: Mapping[str, Any], cells: Sequence[Cell], made: Path, where: Path) -> None:
    """Copy each run's settings, classes, metrics and result to WHERE/runs, and the tables and figures it is about.

    Tables of other tasks that were published there before stay: not every run must be on the machine that adds one.
    """
    out = where / experiment.name
    summary = joined(experiment, summary, out / "results.json")
    for cell in cells:
        target = RunFolder(where / "runs" / cell.folder.path.parent.name / cell.folder.path.name)
        target.path.mkdir(parents=True, exist_ok=True)
        put(target.config, replace(cell.config, data_dir="", init=Path(cell.config.init).name).text())
        for source in (cell.folder.model, cell.folder.metrics, cell.folder.result):
            put(target.path / source.name, source.read_text())
    out.mkdir(parents=True, exist_ok=True)
    put_json(out / "results.json", summary)
    put(out / "results.md", markdown(experiment, summary))
    for file in sorted(made.rglob("*")):
        if file.suffix in (".png", ".csv") and any(fnmatch(file.stem, name) for name in experiment.figures):
            copy = out / Path(*(part for part in file.relative_to(made).parts if part != "figures"))
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)


def joined(experiment: Experiment, summary: Mapping[str, Any], published: Path) -> dict[str, Any]:
    """With the tables of tasks that it does not speak of, in the experiment's order."""
    if not published.is_file():
        return dict(summary)
    try:
        before = json.loads(published.read_text())
        scale, tasks = before["scale"], {**before["tasks"], **summary["tasks"]}
    except (ValueError, LookupError, TypeError):
        raise UsageError(
            f"{published} is no table that certus paper can add to: move it away, or give another folder to --publish."
        ) from None
    if scale != summary["scale"]:
        raise UsageError(
            f"{published.parent} holds tables of scale {scale}, and these are of scale {summary['scale']}: "
            "give another folder to --publish."
        )
    return {**summary, "tasks": {task.name: tasks[task.name] for task in experiment.tasks if task.name in tasks}}
