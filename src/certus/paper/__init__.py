"""The paper's experiments: what is trained, how large, and the tables beside the paper's own figures."""

from certus.paper.cells import cells, chosen, starts
from certus.paper.experiments import EXPERIMENTS, Arm, Experiment, Task, experiment
from certus.paper.scales import SCALES, Scale, in_words, scale_named, task_in_words

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
