"""The paper's experiments: what is trained, how large, and the tables beside the paper's own figures."""

from certus.experiments.paper.cells import cells, chosen, starts
from certus.experiments.paper.experiments import EXPERIMENTS, Arm, Experiment, Task, experiment
from certus.experiments.paper.scales import SCALES, Scale, in_words, scale_named, task_in_words

__all__ = [
    "EXPERIMENTS",
    "SCALES",
    "Arm",
    "Experiment",
    "Scale",
    "Task",
    "cells",
    "chosen",
    "experiment",
    "in_words",
    "scale_named",
    "starts",
    "task_in_words",
]
