"""The summands of a loss: a student's answer compared with labels or with targets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor, nn
from torch.nn import functional as F

from certus.core.losses import Distance, entropy, mse
from certus.core.schedules import Constant, Schedule
from certus.core.step import Step
from certus.core.target import Target


class Read(Protocol):
    """The student's logits (B, C), with gradient, under some perturbation."""

    @property
    def student(self) -> nn.Module: ...
    def __call__(self, step: Step) -> Tensor: ...


class Source(Protocol):
    """Makes the targets of a step."""

    def __call__(self, step: Step) -> Target: ...


class Refine(Protocol):
    """Changes targets before they are used: a pure function."""

    def __call__(self, target: Target, step: Step) -> Target: ...


class Term(Protocol):
    """One summand of the loss, and the student that learns from it."""

    @property
    def student(self) -> nn.Module: ...
    def __call__(self, step: Step) -> Tensor: ...


@dataclass(frozen=True, eq=False)
class CrossEntropy:
    """Mean cross-entropy over the labelled images; `smoothing` is the share of a label spread over all classes.

    A batch with a prior adds it to the logits (Menon et al. 2021): the network then learns answers for classes that
    are equally common.
    """

    read: Read
    smoothing: float = 0.0

    @property
    def student(self) -> nn.Module:
        return self.read.student

    def __call__(self, step: Step) -> Tensor:
        logits, prior = self.read(step), step.batch.prior
        loss = F.cross_entropy(
            logits if prior is None else logits + prior,
            step.batch.labels,
            ignore_index=-1,
            reduction="sum",
            label_smoothing=self.smoothing,
        )
        return loss / (step.batch.labels >= 0).sum().clamp(min=1)

    def __repr__(self) -> str:
        label = f"label smoothed by {self.smoothing:g}" if self.smoothing else "label"
        return f"cross-entropy({self.read}, {label})"


@dataclass(frozen=True, eq=False)
class Consistency:
    """λ(e) · 1/|B| · Σ_i w_i d(student(x_i)/V_i, target_i/V_i).

    Filtered images count as 0 and stay in the denominator; labelled images take part too.
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
        """The source's targets, then those after each refinement; computed once per step, also for an observer."""

        def make() -> tuple[Target, ...]:
            stages = [self.source(step)]
            for refine in self.refine:
                stages.append(refine(stages[-1], step))
            return tuple(stages)

        return step.once(("targets", id(self)), make)

    def target(self, step: Step) -> Target:
        """The targets after all refinements."""
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
    """λ · mean −Σ_c p log p of the student's answers: it makes them more certain."""

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
