"""Publishing an experiment: one CSV file for each kind of record, and for each experiment a page and a figure.

DIR/runs.csv                  a row for every run: settings, errors, seconds
DIR/learning-curves.csv, …    the other records, means over seeds
DIR/EXPERIMENT.md, .png       tables and figure, made from the CSV files alone
"""

from __future__ import annotations

from pathlib import Path

from certus.errors import UsageError
from certus.experiments.paper.experiments import EXPERIMENTS
from certus.experiments.paper.figures import draw_experiment
from certus.experiments.paper.records import Records
from certus.experiments.paper.scales import Scale
from certus.experiments.paper.tables import Command, markdown
from certus.experiments.paper.tasks import Experiment
from certus.writing import put


def published(scale: Scale, folder: Path) -> Records:
    """The records in the folder, which must be of this scale; it may be empty, or not exist yet."""
    records = Records.read(folder)
    others = {row["scale"] for row in records.runs} - {scale.label}
    if others:
        raise UsageError(
            f"{folder} holds runs of scale {', '.join(sorted(others))}, and these are of scale {scale.label}: publish "
            "them to another folder."
        )
    return records


def publish(experiment: Experiment, scale: Scale, records: Records, folder: Path, command: Command) -> None:
    """Add the records to the CSV files in the folder; an arm of a task that is already there is replaced.

    The page of this experiment and those of all experiments in the folder are then made anew.
    """
    published(scale, folder).updated(records).write(folder)
    merged = Records.read(folder)  # with the digits of the CSV files
    for each in EXPERIMENTS.values():
        if each.name == experiment.name or (folder / f"{each.name}.md").is_file():
            draw_experiment(each, scale, merged, folder / f"{each.name}.png")
            put(folder / f"{each.name}.md", markdown(each, scale, merged, command, f"{each.name}.png"))
