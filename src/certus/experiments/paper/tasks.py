"""What an experiment is: arms, which are methods with certain options, on tasks, which are data with certain labels."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, Literal

from certus.errors import UsageError
from certus.experiments.paper.printed import TABLE1, PrintedError

MILLION = 1_000_000
NAME = re.compile(r"(?P<data>.+?)-(?P<labels>\d+)(?:-noise(?P<noise>[\d.]+))?(?:-(?P<images>[\d.]+)M)?")


@dataclass(frozen=True)
class Task:
    """A data set, a number of labels, the share of labels that are replaced by random ones, and, in some experiments,
    how many unlabelled images are seen."""

    data: str
    labels: int
    noise: float = 0.0
    images: float = 0.0

    @property
    def name(self) -> str:
        """`cifar10-4000-noise50`, `svhn-1000-0.2M`."""
        noise, images = f"-noise{100 * self.noise:g}" * (self.noise > 0), f"-{self.millions}M" * (self.images > 0)
        return f"{self.data}-{self.labels}{noise}{images}"

    @property
    def millions(self) -> str:
        """Of images that are seen: `0.2`, `10`."""
        return f"{self.images / MILLION:.6f}".rstrip("0").rstrip(".")

    @classmethod
    def named(cls, name: str) -> Task:
        """The task with this name."""
        found = NAME.fullmatch(name)
        if not found:
            raise ValueError(f"{name!r} is not the name of a task.")
        noise, images = float(found["noise"] or 0) / 100, round(MILLION * float(found["images"] or 0))
        return cls(found["data"], int(found["labels"]), noise, images)

    @property
    def plain(self) -> Task:
        """The same without random labels, of any length."""
        return Task(self.data, self.labels)


@dataclass(frozen=True)
class Arm:
    """A method, with those of its options that the experiment is about."""

    method: str
    options: Mapping[str, Any] = field(default_factory=dict)  # and settings, of the run
    variant: str = ""  # how it differs from the method with its defaults
    rotnet: bool = False  # starts from a trunk that was pretrained to predict rotations
    beside: str = ""  # the row of the paper's table that it is put beside, if not its own

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
        name = self.beside or self.name.removesuffix(", from RotNet")
        return None if task != task.plain else TABLE1.get((task.data, task.labels), {}).get(name)


@dataclass(frozen=True)
class Experiment:
    name: str
    summary: str
    arms: tuple[Arm, ...]
    tasks: tuple[Task, ...]
    references: tuple[str, ...]  # the arms that the others are compared with
    about: Literal["errors", "uncertainty", "selection"] = "errors"  # which table comes first
    panels: tuple[str, ...] = ("errors", "learning")  # of its published figure; the names are in figures.py
    scale: str = ""  # the only one that it has, if it has its own
    lengths: tuple[float, ...] = ()  # of its tasks, in unlabelled images that are seen

    def seeing(self, lengths: Sequence[float], noises: Sequence[float] = (0.0,)) -> Experiment:
        """The same tasks at these lengths, and with these shares of random labels."""
        plain = dict.fromkeys(task.plain for task in self.tasks)
        found = [replace(task, noise=noise, images=n) for task in plain for noise in noises for n in lengths]
        return replace(self, tasks=tuple(found), lengths=tuple(lengths))

    def covering(self, tasks: Iterable[Task]) -> Experiment:
        """Where lengths may be chosen: with those of these tasks that are its own but for length and noise."""
        if not self.lengths:
            return self
        plain = [task.plain for task in self.tasks]
        own = sorted(
            {task for task in tasks if task.images and task.plain in plain},
            key=lambda task: (plain.index(task.plain), task.noise, task.images),
        )
        return replace(self, tasks=tuple(own))

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
