"""The paper's experiments by name: which arms are trained on which tasks. A scale decides how large."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Literal

from certus.errors import UsageError, unknown
from certus.experiments.paper.printed import ARMS, TABLE1, PrintedError


@dataclass(frozen=True)
class Task:
    """A data set, a number of labels, and the share of labels that are replaced by random ones."""

    data: str
    labels: int
    noise: float = 0.0

    @property
    def name(self) -> str:
        return f"{self.data}-{self.labels}" + f"-noise{100 * self.noise:g}" * (self.noise > 0)

    @property
    def clean(self) -> Task:
        """The same without random labels."""
        return Task(self.data, self.labels)


@dataclass(frozen=True)
class Arm:
    """A method, with those of its options that the experiment is about."""

    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    variant: str = ""  # how it differs from the method with its defaults
    rotnet: bool = False  # starts from a trunk that was pretrained to predict rotations
    same_minutes: bool = False  # trains as long as Mean Teacher; the scale has the number of steps

    @property
    def name(self) -> str:
        return ", ".join(filter(None, (self.method, self.variant, "from RotNet" * self.rotnet)))

    @property
    def students(self) -> int:
        """How many networks the circle has."""
        return self.options.get("teachers", 1)

    @property
    def folder(self) -> str:
        return self.name.replace(", ", "-").replace(" ", "-")

    def printed(self, task: Task) -> PrintedError | None:
        """Its error in the paper's table."""
        name = self.name.removesuffix(", from RotNet")
        return None if task.noise else TABLE1.get((task.data, task.labels), {}).get(name)


@dataclass(frozen=True)
class Experiment:
    name: str
    summary: str
    arms: tuple[Arm, ...]
    tasks: tuple[Task, ...]
    references: tuple[str, ...]  # the arms that the others are compared with
    about: Literal["errors", "uncertainty", "selection"] = "errors"  # which table comes first
    panels: tuple[str, ...] = ("errors", "learning")  # of its published figure; the names are in figures.py

    def cells(self, only: str = "") -> list[tuple[Task, Arm]]:
        """Every task with every arm, or those whose TASK/ARM fits one of the patterns."""
        found = [(task, arm) for task in self.tasks for arm in self.arms]
        patterns = [p.strip() for p in only.split(";") if p.strip()]
        fitting = {p: [c for c in found if fits(p, *c)] for p in patterns}
        for pattern, cells in fitting.items():
            if not cells:
                raise UsageError(f"No run of {self.name} fits `only` {pattern!r}: use `list` to see the names of all.")
        return [c for c in found if not patterns or any(c in cells for cells in fitting.values())]


def fits(pattern: str, task: Task, arm: Arm) -> bool:
    """TASK, TASK/ARM or */ARM, where * and ? fit anything."""
    wanted_task, _, wanted_arm = pattern.partition("/")
    return fnmatchcase(task.name, wanted_task) and any(
        fnmatchcase(name, wanted_arm or "*") for name in (arm.name, arm.folder)
    )


EVERY_TARGET = {"hard": False, "probabilistic": False, "temper": False}  # FT-CCL without its parts: Mean Teacher


def ccl(variant: str = "", **options: Any) -> Arm:
    """FT-CCL with these options. With its own metric or draws, or without any use of certainty, it does not take the
    paper's certainty at any scale."""
    other = options.keys() & {"metric", "draws"} or options.keys() >= EVERY_TARGET.keys()
    return Arm("ft-ccl", {"certainty": "quick"} | options if other else options, variant)


SUPERVISED, MEAN_TEACHER, FILTERING, TEMPERATURE, FT = map(
    Arm, ("supervised", "mean-teacher", "filtering-ccl", "temperature-ccl", "ft-ccl")
)
SAME_MINUTES = Arm("supervised", variant="same minutes", same_minutes=True)  # more time instead of more images
VAT = Arm("vat", {"ent": True}, "with entropy")  # the paper's VAT+Ent
TEACHERS = {n: ccl(f"{n} teachers", teachers=n) for n in (2, 3, 4)}
PAPER_CERTAINTY = ccl("the paper's certainty", certainty="paper")  # at each scale one of these two is plain ft-ccl
QUICK_CERTAINTY = ccl("quick certainty", certainty="quick")
RANDOM = ccl("random ranks", metric="random")
CONFIDENCE = ccl("confidence ranks", metric="confidence")
REVERSED = ccl("reversed ranks", metric="reversed")  # are the uncertain targets the informative ones?
STRONG = ccl("strong views", student_view="strong")
STRONG_CONTROLS = (  # does certainty contribute to the gain of strong views? The last is Mean Teacher with them
    ccl("strong views, random ranks", student_view="strong", metric="random"),
    ccl("strong views, confidence ranks", student_view="strong", metric="confidence"),
    ccl("strong views, every target", student_view="strong", **EVERY_TARGET),
)
RANDOM_WEIGHTS = "from random weights"
STARTS = (  # the gain by RotNet: the paper's CCL starts from it, the rivals that it quotes do not
    *(Arm(method, rotnet=True) for method in ("supervised", "mean-teacher", "ft-ccl")),
    ccl(RANDOM_WEIGHTS),
)

# The paper's rows in its order, then ours: the controls first.
ROWS = (
    *(VAT if name == VAT.name else Arm(name) for name in ARMS if "teachers" not in name),
    TEACHERS[2],
    TEACHERS[3],
    SAME_MINUTES,
    RANDOM,
    CONFIDENCE,
    REVERSED,
    PAPER_CERTAINTY,
    QUICK_CERTAINTY,
    Arm("label-propagation"),
    Arm("pseudo-label"),
    Arm("entropy-minimisation"),
    Arm("fixmatch"),
    STRONG,
    *STARTS,
)

ABLATION = (
    SUPERVISED,
    MEAN_TEACHER,
    FT,
    RANDOM,
    CONFIDENCE,
    REVERSED,
    PAPER_CERTAINTY,
    QUICK_CERTAINTY,
    FILTERING,
    TEMPERATURE,
    ccl("hard filter alone", probabilistic=False, temper=False),
    ccl("probabilistic filter alone", hard=False, temper=False),
    ccl("without the hard filter", hard=False),
    ccl("without the probabilistic filter", probabilistic=False),
    *(ccl(f"T = {t}", draws=f"independent:{t}") for t in (2, 3, 5, 10, 20)),
    *(ccl(f"metric {name.upper()}", metric=name) for name in ("pv", "ev", "mi")),
    *TEACHERS.values(),
)

THOUSAND = (Task("cifar10", 1000), Task("svhn", 1000))  # the paper's analyses use only the first

EXPERIMENTS = {
    e.name: e
    for e in (
        Experiment(
            "table1",
            "test errors of every method on CIFAR-10, CIFAR-100 and SVHN, beside the paper's",
            ROWS,
            tuple(Task(*task) for task in TABLE1),
            ("supervised", "supervised, same minutes", "mean-teacher"),
        ),
        Experiment(
            "uncertainty",
            "how well each uncertainty finds wrong answers, on the unlabelled and on the test images",
            (FT,),
            THOUSAND,
            ("ft-ccl",),
            about="uncertainty",
            panels=("bins",),
        ),
        Experiment(
            "selection",
            "the accuracy of the selected targets and of all targets during training",
            (MEAN_TEACHER, FT, FILTERING, CONFIDENCE, RANDOM, REVERSED),
            THOUSAND,
            ("ft-ccl", "ft-ccl, random ranks"),
            about="selection",
            panels=("targets", "losses"),
        ),
        Experiment(
            "noise",
            "4,000 labels of which 20, 30 or 50 % are replaced by random ones",
            (SUPERVISED, SAME_MINUTES, MEAN_TEACHER, FILTERING, TEMPERATURE, FT),
            tuple(Task("cifar10", 4000, noise) for noise in (0.2, 0.3, 0.5)),
            ("supervised", "supervised, same minutes", "mean-teacher"),
        ),
        Experiment(
            "ablation",
            "ours: FT-CCL without each of its parts, and with other ranks instead of certainty",
            ABLATION,
            THOUSAND,
            ("ft-ccl", "mean-teacher"),
        ),
        Experiment(
            "views",
            "ours: the student sees strongly augmented images; does certainty help then?",
            (SUPERVISED, SAME_MINUTES, MEAN_TEACHER, FT, Arm("fixmatch"), STRONG, *STRONG_CONTROLS),
            THOUSAND,
            ("ft-ccl, strong views", "supervised", "supervised, same minutes"),
            about="selection",
            panels=("errors", "targets"),
        ),
    )
}


def experiment(name: str) -> Experiment:
    if name not in EXPERIMENTS:
        raise unknown("experiment", name, EXPERIMENTS)
    return EXPERIMENTS[name]
