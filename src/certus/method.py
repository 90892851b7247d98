"""A method is a named sum of terms over students, with followers that watch them. One loop trains all methods."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from certus.data.batches import Sees
from certus.losses import Distance, entropy, mse
from certus.models.roles import role
from certus.schedules import Constant, Schedule, cosine
from certus.step import Step
from certus.target import Target


class Read(Protocol):
    """The student's logits (B, C), with gradient, under some perturbation."""

    @property
    def student(self) -> nn.Module: ...
    def __call__(self, step: Step) -> Tensor: ...


class Source(Protocol):
    """Where targets come from."""

    def __call__(self, step: Step) -> Target: ...


class Refine(Protocol):
    """What is done to targets before they are taught: pure."""

    def __call__(self, target: Target, step: Step) -> Target: ...


class Follower(Protocol):
    """A module that watches a student and is renewed after every step, from what the step has computed."""

    def follow(self, step: Step) -> None: ...


class Term(Protocol):
    """One summand of the loss, and the student that it teaches."""

    @property
    def student(self) -> nn.Module: ...
    def __call__(self, step: Step) -> Tensor: ...


@dataclass(frozen=True, eq=False)
class CrossEntropy:
    """Mean cross-entropy over the labelled images of the batch."""

    read: Read

    @property
    def student(self) -> nn.Module:
        return self.read.student

    def __call__(self, step: Step) -> Tensor:
        loss = F.cross_entropy(self.read(step), step.batch.labels, ignore_index=-1, reduction="sum")
        return loss / (step.batch.labels >= 0).sum().clamp(min=1)

    def __repr__(self) -> str:
        return f"cross-entropy({self.read}, label)"


@dataclass(frozen=True, eq=False)
class Consistency:
    """λ(e) · 1/|B| · Σ_i w_i d(student(x_i)/V_i, target_i/V_i).

    Filtered images count 0 and stay in the denominator; labelled images take part too.
    """

    read: Read
    source: Source
    refine: tuple[Refine, ...] = ()
    distance: Distance = mse
    weight: Schedule = Constant(1.0)  # noqa: RUF009 (frozen)

    @property
    def student(self) -> nn.Module:
        return self.read.student

    def targets(self, step: Step) -> tuple[Target, ...]:
        """As the source makes them, and after each refinement; once in a step, so that an observer reads the same."""

        def make() -> tuple[Target, ...]:
            stages = [self.source(step)]
            for refine in self.refine:
                stages.append(refine(stages[-1], step))
            return tuple(stages)

        return step.once(("targets", id(self)), make)

    def target(self, step: Step) -> Target:
        """What is taught in the end."""
        return self.targets(step)[-1]

    def __call__(self, step: Step) -> Tensor:
        target = self.target(step)
        distance = self.distance(self.read(step), target.logits, target.temperature)
        return self.weight(step.clock) * (target.weight * distance).mean()

    def __repr__(self) -> str:
        name = getattr(self.distance, "__name__", repr(self.distance))
        lines = [f"{self.weight} · {name}({self.read}, {self.source})"]
        return "\n    ".join([*lines, *map(repr, self.refine)])


@dataclass(frozen=True, eq=False)
class Entropy:
    """λ · mean −Σ_c p log p of the student's answers: they should be sure of something."""

    read: Read
    weight: Schedule = Constant(1.0)  # noqa: RUF009 (frozen)

    @property
    def student(self) -> nn.Module:
        return self.read.student

    def __call__(self, step: Step) -> Tensor:
        logits = self.read(step)
        return self.weight(step.clock) * entropy(logits, logits.new_ones(len(logits))).mean()

    def __repr__(self) -> str:
        return f"{self.weight} · entropy({self.read})"


@dataclass(frozen=True, eq=False)
class Method:
    """Students, what they are taught, who follows them, and who answers in the end."""

    name: str
    students: tuple[nn.Module, ...]
    terms: Mapping[str, Term]
    answers: tuple[nn.Module, ...]
    followers: tuple[Follower, ...] = ()
    sees: Sees = "both"
    pace: Callable[[float], float] = cosine  # fraction of the run done -> factor of the learning rate

    def losses(self, step: Step) -> dict[str, Tensor]:
        return {name: term(step) for name, term in self.terms.items()}

    def follow(self, step: Step) -> None:
        for follower in self.followers:
            follower.follow(step)

    @cached_property
    def state(self) -> nn.ModuleDict:
        """Every tensor that a run changes: its state dict is the method's whole checkpoint."""
        parts = {"students": self.students, "followers": self.followers}
        return nn.ModuleDict({name: nn.ModuleList(part) for name, part in parts.items()})  # type: ignore[arg-type]

    def __repr__(self) -> str:
        terms = [f"  {name} = {term}" for name, term in self.terms.items()]
        follow = [f"  {f}" for f in self.followers]
        answer = ", ".join(role(net) for net in self.answers)
        return "\n".join([self.name, *terms, *follow, f"  answer: {answer}"])


def numbered(word: str, i: int, n: int) -> str:
    """`student` alone, `student 2` among several."""
    return word if n == 1 else f"{word} {i + 1}"


def total(losses: Mapping[str, Tensor]) -> Tensor:
    return torch.stack(list(losses.values())).sum()
