"""The paper's experiments: what is trained, at which scale, and the tables beside the paper's own."""

from certus.experiments.paper.cells import cells, chosen, pretraining_cells
from certus.experiments.paper.experiments import EXPERIMENTS, experiment
from certus.experiments.paper.scales import SCALES, Scale, describe_scale, describe_task, scale_named, scale_of
from certus.experiments.paper.tasks import Arm, Experiment, Task

__all__ = [
    "EXPERIMENTS",
    "SCALES",
    "Arm",
    "Experiment",
    "Scale",
    "Task",
    "cells",
    "chosen",
    "describe_scale",
    "describe_task",
    "experiment",
    "pretraining_cells",
    "scale_named",
    "scale_of",
]
