"""Π model: the student agrees with itself under another perturbation, and both of its answers learn."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from certus.core.build_context import BuildContext
from certus.core.method import Method
from certus.core.schedules import RampUp
from certus.core.step import Step
from certus.core.student import See
from certus.core.terms import Consistency, CrossEntropy
from certus.methods.options import at_least, option
from certus.methods.recipe import Recipe
from certus.teachers import Own


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
class SelfConsistency(Consistency):
    """λ(e) · mean ‖softmax(z_a) − softmax(z_b)‖², with gradient into both answers, as in the authors' code."""

    other: See | None = None

    def __call__(self, step: Step) -> Tensor:
        assert self.other is not None
        difference = self.read(step).softmax(1) - self.other(step).softmax(1)
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
                See(student, "a"),
                Own(student, "b"),
                weight=RampUp(options.weight, options.ramp),
                other=See(student, "b"),
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
