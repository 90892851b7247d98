"""Π model: the student agrees with itself under another perturbation, and both of its answers learn."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from certus.core.build_context import BuildContext
from certus.core.method import Method
from certus.core.schedules import RampUp
from certus.core.step import Step
from certus.core.student import See
from certus.core.target import Target
from certus.core.terms import Consistency, CrossEntropy
from certus.methods.options import at_least, option
from certus.methods.recipe import Recipe
from certus.networks.roles import role


@dataclass(frozen=True)
class Options:
    """The options of the Π model."""

    weight: float = option(
        10.0,
        "λ_max, the weight of the consistency term",
        at_least(0),
        source="Laine & Aila 2017: 100 on the mean over ten classes, 10 on their sum",
    )
    ramp: float = option(
        80.0, "epochs of the `clock` over which λ rises to its maximum", at_least(0), source="Liu & Tan 2021"
    )


@dataclass(frozen=True, eq=False)
class Twin:
    """The student's answer to another view, which learns too. It changes no batch-norm statistics."""

    net: nn.Module
    view: str

    def logits(self, step: Step) -> Tensor:
        return step.once(
            ("twin", id(self.net), self.view), lambda: step.probe(self.net, step.view(self.view), self.view)
        )

    def __call__(self, step: Step) -> Target:
        return Target.plain(self.logits(step))

    def __repr__(self) -> str:
        return f"{role(self.net)}({self.view})"


@dataclass(frozen=True, eq=False)
class SelfConsistency(Consistency):
    """λ(e) · mean ‖softmax(z_a) − softmax(z_b)‖², with gradient into both answers, as in the authors' code."""

    source: Twin

    def __call__(self, step: Step) -> Tensor:
        difference = self.read(step).softmax(1) - self.source.logits(step).softmax(1)
        return self.weight(step.clock) * difference.square().sum(1).mean()


def pi(context: BuildContext, options: Options) -> Method:
    student = context.network(0)
    return Method(
        name="pi",
        students=(student,),
        answers=(student,),
        terms={
            "supervised": CrossEntropy(See(student, "a"), context.smoothing),
            "consistency": SelfConsistency(
                See(student, "a"), Twin(student, "b"), weight=RampUp(options.weight, options.ramp)
            ),
        },
    )


RECIPES = (
    Recipe(
        "pi",
        "the student agrees with itself under other noise",
        "Laine & Aila 2017, Temporal Ensembling for Semi-Supervised Learning",
        Options,
        pi,
    ),
)
