"""The size of an experiment: the paper's, or one that a CPU trains in minutes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from certus.config import Config, resolve
from certus.core.schedules import EPOCHS
from certus.errors import unknown
from certus.experiments.paper.experiments import Arm, Task
from certus.methods import recipe
from certus.training.planning import complete


@dataclass(frozen=True)
class Scale:
    name: str
    seeds: int
    settings: Mapping[str, Any]  # of every run
    epochs: float = 0.0  # of a method whose clock has 300, others in proportion; 0: by `settings` or `steps_of`
    steps_of: Mapping[int, int] = field(default_factory=dict)  # by the number of labels: more labels need more steps
    by_task: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # by DATA-LABELS, or DATA-LABELS/METHOD
    same_minutes: float = 1.0  # steps of supervised learning in the time of one step of Mean Teacher
    by_method: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # settings and options
    rotnet: bool = False  # CCL starts from RotNet in table 1, as in the paper
    pretraining: float = 0.0  # epochs of RotNet

    def config(self, task: Task, arm: Arm, seed: int, data_dir: str = "", init: str = "") -> Config:
        """The settings of one run. Later ones win: the data set's preset, the method's, the scale's, the arm's."""
        known = recipe(arm.method).defaults()
        length = {"steps": self.steps_of[task.labels]} if self.steps_of else {}
        of_task, of_both = (self.by_task.get(f"{task.clean.name}{of}", {}) for of in ("", f"/{arm.method}"))
        chosen = {**self.settings, **length, **of_task, **self.by_method.get(arm.method, {}), **of_both}
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
                "options": {n: v for n, v in chosen.items() if n in known} | dict(arm.options),
            }
        )
        config = self.sized(config, self.epochs * config.clock / EPOCHS)
        return replace(config, steps=round(self.same_minutes * config.steps)) if arm.same_minutes else config

    def rotation(self, data: str, seed: int, data_dir: str = "") -> Config:
        """The settings of a RotNet run, which uses no labels."""
        given = {name: value for name, value in self.settings.items() if name != "steps"}
        config = resolve(
            {**given, "data": data, "method": "rotation", "validation": 0, "seed": seed, "data_dir": data_dir}
        )
        return self.sized(replace(config, threads=1), self.pretraining)

    def sized(self, config: Config, epochs: float) -> Config:
        """With every `auto` decided, and the number of steps."""
        return complete(config, epochs)


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

# Methods of the Mean Teacher kind, which have λ = 6: the best of 2, 6 and 15 on validation labels (docs/paper.md)
CONSISTENT = (
    *("pi", "temporal-ensembling", "mean-teacher", "pi-sntg", "temporal-ensembling-sntg", "mean-teacher-sntg"),
    *("mean-teacher-label-propagation", "mean-teacher-fastswa"),
    *CCL,
)

CPU = Scale(
    "cpu",
    seeds=3,
    settings={
        "network": "cnn13",
        "width": 16,
        "dropout": 0.1,
        "labelled_batch": 32,
        "unlabelled_batch": 32,
        "unlabelled": 10_000,
    },
    steps_of={1000: 2000, 2000: 4000, 4000: 6000, 10_000: 8000},  # chosen as docs/paper.md describes
    by_task={task: {"steps": 5000, "weight_decay": 2e-3} for task in ("svhn-1000", "cifar10-1000")},  # docs/paper.md
    same_minutes=2.5,  # measured: half of the images, and no teacher
    by_method={
        **{method: {"weight": 6.0} for method in CONSISTENT},
        "fixmatch": {"decay": 0.99, "learning_rate": 0.1},  # its 0.999 and 0.03 are for a million steps
    },
    pretraining=6.4,  # 2,000 steps too
)

# Two more lengths: does a finding still hold if every method trains four times as long?
CPU_SHORT = replace(CPU, name="cpu-short", by_task={})
CPU_LONG = replace(
    CPU_SHORT,
    name="cpu-long",
    steps_of={labels: 4 * steps for labels, steps in CPU_SHORT.steps_of.items()},
    by_task={  # the task on which supervised learning still improves at scale `cpu`
        "cifar10-1000": {"weight_decay": 2e-3},
        "cifar10-1000/mean-teacher": {"weight": 2.0},
    },
    pretraining=4 * CPU_SHORT.pretraining,
)

SCALES = {scale.name: scale for scale in (FULL, CPU, CPU_SHORT, CPU_LONG)}


def scale_named(name: str) -> Scale:
    if name not in SCALES:
        raise unknown("scale", name, SCALES)
    return SCALES[name]


def describe_scale(scale: Scale, config: Config) -> str:
    """How runs at this scale differ from the paper's on every task; `config` is one of them."""
    validation = (
        "Labelled images are kept for validation and are not trained on. Nothing is chosen by them during a run. The "
        "test images are read once, at its end."
    )
    if scale.name == "full":
        return (
            "Scale full, as in the paper: 13-layer CNN of width 128, 300 epochs (MT+FSWA: its authors' 1,200, and 780 "
            "on CIFAR-100), batches of 128 labelled and 384 unlabelled images, PV of 10 draws as certainty. In table 1 "
            f"CCL starts from RotNet, which is trained for {scale.pretraining:g} epochs (the paper does not say how "
            "long), each student of a circle from its own. Unlike in the paper, the rivals are trained here too, with "
            f"their authors' constants. {validation}"
        )
    return (
        f"Scale {scale.name}, smaller than the paper's: width {config.width} instead of 128 (about "
        f"1/{(128 // config.width) ** 2} of the multiplications), batches of {config.labelled_batch} labelled + "
        f"{config.unlabelled_batch} unlabelled images instead of 128 + 384, {config.unlabelled:,} unlabelled images "
        "instead of all, fewer steps (see each task) instead of 25,000 to 40,000. Every network starts from random "
        "weights, unless its name says RotNet. Certainty is PE of a tree of 4 draws instead of PV of 10. λ, its ramp, "
        f"learning rate and dropout were chosen on validation labels with 1,000 labels and {CPU.steps_of[1000]:,} "
        f"steps. Compare the rows with each other, not with the paper's column. {validation}"
    )


def describe_task(scale: Scale, configs: Sequence[Config], seeds: Collection[int]) -> str:
    """The settings of one task's runs; `seeds` are the numbers of seeds of its arms."""
    one = configs[0]
    usual, longest = min(c.steps for c in configs), max(c.steps for c in configs)
    length = f"{scale.epochs:g} epochs" if scale.epochs else f"{usual:,} steps"
    if longest > usual and not scale.epochs:
        length += f" (supervised learning for the same minutes: {longest:,})"
    task = Task(one.data, one.labels).name
    own = scale.by_task.get(task, {}).get("weight_decay")
    decay = f", weight decay {own:g} instead of {Config.weight_decay:g}" if own else ""
    chosen = {m: scale.by_task.get(f"{task}/{m}", {}).get("weight") for m in dict.fromkeys(c.method for c in configs)}
    weights = "".join(f", λ = {weight:g} for {method}" for method, weight in chosen.items() if weight)
    least, most = min(seeds), max(seeds)
    number = f"{f'{least} to ' * (least < most)}{most} seed{'s' * (most > 1)}{' instead of 5' * (least < 5)}"
    return f"{length}{decay}{weights}, {one.validation:,} images kept for validation, {number}."
