"""The paper's experiments by name: which arms are trained on which tasks. How large, a scale says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Literal

from certus.errors import UsageError, unknown
from certus.experiments.paper.printed import ARMS, TABLE1, PrintedError


@dataclass(frozen=True)
class Task:
    """What is to be learnt: a data set, so many labels, a fraction of them random."""

    data: str
    labels: int
    noise: float = 0.0

    @property
    def name(self) -> str:
        return f"{self.data}-{self.labels}" + f"-noise{100 * self.noise:g}" * (self.noise > 0)

    @property
    def clean(self) -> Task:
        """The same with every label right."""
        return Task(self.data, self.labels)


@dataclass(frozen=True)
class Arm:
    """A method, with those of its options that the experiment is about."""

    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    told: str = ""  # what sets it apart from the method as it is
    rotnet: bool = False  # starts from a trunk that has learnt to tell how an image was turned
    same_minutes: bool = False  # as many steps as take as long as Mean Teacher's; the scale knows how many

    @property
    def name(self) -> str:
        return ", ".join(filter(None, (self.method, self.told, "from RotNet" * self.rotnet)))

    @property
    def folder(self) -> str:
        return self.name.replace(", ", "-").replace(" ", "-")

    def printed(self, task: Task) -> PrintedError | None:
        """In the paper's table."""
        name = self.name.removesuffix(", from RotNet")
        return None if task.noise else TABLE1.get((task.data, task.labels), {}).get(name)


@dataclass(frozen=True)
class Experiment:
    name: str
    summary: str
    arms: tuple[Arm, ...]
    tasks: tuple[Task, ...]
    references: tuple[str, ...]  # arms that the others' differences are told to
    about: Literal["errors", "uncertainty", "selection"] = "errors"  # which table comes first
    figures: tuple[str, ...] = ("learning-curves", "losses", "risk-coverage", "reliability")  # those that it is about

    def cells(self, only: str = "") -> list[tuple[Task, Arm]]:
        """Every task with every arm, or those whose TASK/ARM some pattern fits."""
        found = [(task, arm) for task in self.tasks for arm in self.arms]
        patterns = [p.strip() for p in only.split(";") if p.strip()]
        fitting = {p: [c for c in found if fits(p, *c)] for p in patterns}
        for pattern, cells in fitting.items():
            if not cells:
                raise UsageError(
                    f"No cell of {self.name} fits --only {pattern!r}: `certus paper {self.name} --list` names them all."
                )
        return [c for c in found if not patterns or any(c in cells for cells in fitting.values())]


def fits(pattern: str, task: Task, arm: Arm) -> bool:
    """TASK, TASK/ARM or */ARM, with * and ? for what is left open."""
    wanted_task, _, wanted_arm = pattern.partition("/")
    return fnmatchcase(task.name, wanted_task) and any(
        fnmatchcase(name, wanted_arm or "*") for name in (arm.name, arm.folder)
    )


EVERY_TARGET = {"hard": False, "probabilistic": False, "temper": False}  # what is left is Mean Teacher


def ccl(told: str = "", **options: Any) -> Arm:
    """FT-CCL; one whose metric or draws are told, or that has no use for certainty, does not take the paper's."""
    other = options.keys() & {"metric", "draws"} or options.keys() >= EVERY_TARGET.keys()
    return Arm("ft-ccl", {"certainty": "quick"} | options if other else options, told)


SUPERVISED, MEAN_TEACHER, FILTERING, TEMPERATURE, FT = map(
    Arm, ("supervised", "mean-teacher", "filtering-ccl", "temperature-ccl", "ft-ccl")
)
SAME_MINUTES = Arm("supervised", told="same minutes", same_minutes=True)  # whether it gains by time, not by images
TEACHERS = {n: ccl(f"{n} teachers", teachers=n) for n in (2, 3, 4)}
PAPER_CERTAINTY = ccl("the paper's certainty", certainty="paper")  # at each scale one of the two is ft-ccl as it is
QUICK_CERTAINTY = ccl("quick certainty", certainty="quick")
RANDOM = ccl("random ranks", metric="random")
CONFIDENCE = ccl("confidence ranks", metric="confidence")
REVERSED = ccl("reversed ranks", metric="reversed")  # whether it is the uncertain targets that there is to learn from
STRONG = ccl("strong views", student_view="strong")
STRONG_CONTROLS = (  # whether certainty has a part in what strong views gain; the last is Mean Teacher with them
    ccl("strong views, random ranks", student_view="strong", metric="random"),
    ccl("strong views, confidence ranks", student_view="strong", metric="confidence"),
    ccl("strong views, every target", student_view="strong", **EVERY_TARGET),
)
RANDOM_WEIGHTS = "from random weights"
STARTS = (  # what the start is worth: the paper's CCL has it, the rivals that it quotes have not
    *(Arm(method, rotnet=True) for method in ("supervised", "mean-teacher", "ft-ccl")),
    ccl(RANDOM_WEIGHTS),
)

# The paper's rows in its order, then those that it has not: the controls first.
ROWS = (
    *(Arm(name) for name in ARMS if "," not in name),
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

THOUSAND = (Task("cifar10", 1000), Task("svhn", 1000))  # the paper's analyses are on the first alone

EXPERIMENTS = {
    e.name: e
    for e in (
        Experiment(
            "table1",
            "test errors of every method on CIFAR-10, CIFAR-100 and SVHN, beside those that the paper prints",
            ROWS,
            tuple(Task(*task) for task in TABLE1),
            ("supervised", "supervised, same minutes", "mean-teacher"),
        ),
        Experiment(
            "uncertainty",
            "what each uncertainty is worth: accuracy against it on the unlabelled and on the test images",
            (FT,),
            THOUSAND,
            ("ft-ccl",),
            about="uncertainty",
            figures=("*-bins", "*-class-pv"),
        ),
        Experiment(
            "selection",
            "how right the selected targets are, against all targets, over training",
            (MEAN_TEACHER, FT, FILTERING, CONFIDENCE, RANDOM, REVERSED),
            THOUSAND,
            ("ft-ccl", "ft-ccl, random ranks"),
            about="selection",
            figures=("*-targets", "*-filter", "*-classes", "*-uncertainty"),
        ),
        Experiment(
            "noise",
            "4,000 labels of which 20, 30 or 50 % are replaced by random ones",
            (SUPERVISED, SAME_MINUTES, MEAN_TEACHER, FILTERING, TEMPERATURE, FT),
            tuple(Task("cifar10", 4000, noise) for noise in (0.2, 0.3, 0.5)),
            ("supervised", "supervised, same minutes", "mean-teacher"),
            figures=("label-noise", "learning-curves"),
        ),
        Experiment(
            "ablation",
            "ours: FT-CCL without each of its parts, and with certainty replaced by confidence or by chance",
            ABLATION,
            THOUSAND,
            ("ft-ccl", "mean-teacher"),
        ),
        Experiment(
            "views",
            "ours: the student sees strongly changed images, and what certainty is worth then",
            (SUPERVISED, SAME_MINUTES, MEAN_TEACHER, FT, Arm("fixmatch"), STRONG, *STRONG_CONTROLS),
            THOUSAND,
            ("ft-ccl, strong views", "supervised", "supervised, same minutes"),
            about="selection",
            figures=("learning-curves", "*-targets", "*-classes"),
        ),
    )
}


def experiment(name: str) -> Experiment:
    if name not in EXPERIMENTS:
        raise unknown("experiment", name, EXPERIMENTS)
    return EXPERIMENTS[name]
