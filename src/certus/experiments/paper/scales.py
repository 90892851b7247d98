"""The size of an experiment: the paper's, or one that a CPU trains in minutes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from certus.config import Config, resolve
from certus.core.schedules import EPOCHS
from certus.errors import unknown
from certus.experiments.paper.experiments import MEAN_TEACHER
from certus.experiments.paper.tasks import Arm, Experiment, Task
from certus.methods import recipe
from certus.training.planning import complete, complete_seeing, minutes_of


@dataclass(frozen=True)
class Scale:
    name: str
    seeds: int
    settings: Mapping[str, Any]  # of every run
    epochs: float = 0.0  # of a method whose clock has 300, others in proportion
    minutes: float = 0.0  # of every run, RotNet included; 0: by `epochs`, by the task's images or by `settings`
    cores: float = 1.0  # processor minutes in a minute: two threads make a step 1.64 times as quick as one
    by_task: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # by DATA-LABELS/METHOD
    by_method: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # settings and options
    rotnet: bool = False  # CCL starts from RotNet in table 1, as in the paper
    pretraining: float = 0.0  # epochs of RotNet; where runs have minutes, its share of them

    @property
    def label(self) -> str:
        """Its name and its minutes: runs of different lengths are never mixed."""
        return f"{self.name}-{self.minutes:g}min" if self.minutes else self.name

    def config(self, task: Task, arm: Arm, seed: int, data_dir: str = "", init: str = "") -> Config:
        """The settings of one run. Later ones win: the data set's preset, the method's, the scale's, the arm's.

        Without steps where these must be timed.
        """
        known = recipe(arm.method).defaults()
        chosen = {
            **self.settings,
            **self.by_method.get(arm.method, {}),
            **self.by_task.get(f"{task.plain.name}/{arm.method}", {}),
            **arm.options,
        }
        config = resolve(
            {
                **{name: value for name, value in chosen.items() if name not in known},
                "data": task.data,
                "labels": task.labels,
                "label_noise": task.noise,
                "method": arm.method,
                "seed": seed,
                "data_dir": data_dir,
                "init": init,
                "threads": 1,
                "options": {n: v for n, v in chosen.items() if n in known},
            }
        )
        if task.images and arm.method != "supervised":
            return complete_seeing(config, task.images)
        return config if self.minutes or task.images else complete(config, self.epochs * config.clock / EPOCHS)

    def minutes_of(self, task: Task, arm: Arm, data_dir: str) -> float:
        """Processor minutes of a run that must be timed. On a task that counts images, supervised learning, which sees
        none of them, has Mean Teacher's minutes."""
        if task.images:
            return minutes_of(self.config(task, MEAN_TEACHER, 0, data_dir))
        return self.cores * self.minutes * (1 - self.pretraining * arm.students * arm.rotnet)

    def rotation(self, data: str, seed: int, data_dir: str = "") -> Config:
        """The settings of a RotNet run, which uses no labels; without steps where these must be timed."""
        config = resolve(
            {**self.settings, "data": data, "method": "rotation", "validation": 0, "seed": seed, "data_dir": data_dir}
        )
        config = replace(config, threads=1, steps=0)
        return config if self.minutes else complete(config, self.pretraining)


CCL = ("filtering-ccl", "temperature-ccl", "ft-ccl")

FULL = Scale(
    "full",
    seeds=5,
    settings={"network": "cnn13", "width": 128},
    epochs=EPOCHS,
    by_method={method: {"certainty": "paper"} for method in CCL},
    by_task={  # Luo et al. 2018
        f"cifar10-{labels}/{base}-sntg": {"graph": 0.6}
        for labels in (1000, 2000)
        for base in ("pi", "temporal-ensembling", "mean-teacher")
    },
    rotnet=True,
    pretraining=100,
)

# The engine (config/engine.py): the network, the optimiser and each method's settings. One width for all methods.
CPU = Scale(
    "cpu",
    seeds=3,
    settings={"network": "sprint", "width": 128},
    minutes=3.0,
    by_method={"fixmatch": {"labelled_batch": 24, "unlabelled_batch": 168}},  # Sohn et al. 2020: 1 to 7
    pretraining=0.25,
)
# Of `ladder` and `map`: the task says how many unlabelled images are seen, in batches of one size.
IMAGES = Scale(
    "images",
    seeds=3,
    settings=CPU.settings,
    by_method={"fixmatch": {"labelled_batch": 48, "unlabelled_batch": 336}},  # as many as the others, 1 to 7
)
# Of `record`: a minute is one of two cores, as in benchmarks/minutes.py. Fixed before the first run.
RECORD = Scale("record", seeds=1, settings={"network": "sprint", "width": 192}, minutes=180.0, cores=1.64)

SCALES = {scale.name: scale for scale in (FULL, CPU)}
OWN = {scale.name: scale for scale in (IMAGES, RECORD)}  # of one experiment or two, which have no other


def scale_named(name: str) -> Scale:
    if name not in SCALES:
        raise unknown("scale", name, SCALES)
    return SCALES[name]


def scale_of(experiment: Experiment, name: str) -> Scale:
    """The experiment's own scale, or the one with this name."""
    return OWN[experiment.scale] if experiment.scale else scale_named(name)


VALIDATION = (
    "Labelled images are kept for validation and are not trained on. Nothing is chosen by them during a run. The "
    "test images are read once, at its end."
)
ENGINE = (
    "network sprint of width {width} with Muon instead of a 13-layer CNN of width 128 with SGD, and the settings of "
    "certus for short runs (docs/paper.md), chosen on validation labels. All unlabelled images take part. Every "
    "network starts from random weights, unless its name says RotNet. Certainty is PE of a tree of 4 draws instead of "
    "PV of 10, unless the arm says otherwise. Compare the rows with each other, not with the paper's column."
)


def describe_scale(scale: Scale, config: Config) -> str:
    """How runs at this scale differ from the paper's on every task; `config` is one of them."""
    if scale.name == "full":
        return (
            "Scale full, as in the paper: 13-layer CNN of width 128, 300 epochs (MT+FSWA: its authors' 1,200, and 780 "
            "on CIFAR-100), batches of 128 labelled and 384 unlabelled images, PV of 10 draws as certainty. In table 1 "
            f"CCL starts from RotNet, which is trained for {scale.pretraining:g} epochs (the paper does not say how "
            "long), each student of a circle from its own. Unlike in the paper, the rivals are trained here too, with "
            f"their authors' constants. {VALIDATION}"
        )
    if scale.name == "images":
        length = (
            "The semi-supervised methods see as many unlabelled images as the task says, after a warm-up on labels "
            "alone (but for those as printed). Supervised learning has Mean Teacher's processor time"
        )
    elif scale.cores != 1:
        length = (
            f"Scale {scale.label}: every run has the work that two cores do in {scale.minutes:g} minutes "
            f"({scale.cores * scale.minutes:.0f} minutes of one)"
        )
    else:
        length = (
            f"Scale {scale.label}: every run has {scale.minutes:g} minutes of one core. Its steps were timed "
            "beforehand, by processor time; all seeds have the same number. A start from RotNet is part of the "
            f"minutes: {100 * scale.pretraining:g} % of them for each network"
        )
    return f"{length}. Smaller than the paper's: {ENGINE.format(width=config.width)} {VALIDATION}"


def describe_task(scale: Scale, configs: Sequence[Config], seeds: Collection[int]) -> str:
    """The settings of one task's runs; `seeds` are the numbers of seeds of its arms."""
    fewest, longest = min(c.steps for c in configs), max(c.steps for c in configs)
    steps = f"{f'{fewest:,} to ' * (fewest < longest)}{longest:,} steps"
    length = f"{scale.epochs:g} epochs" if scale.epochs else steps
    least, most = min(seeds), max(seeds)
    number = f"{f'{least} to ' * (least < most)}{most} seed{'s' * (most > 1)}{' instead of 5' * (least < 5)}"
    return f"{length}, {configs[0].validation:,} images kept for validation, {number}."
