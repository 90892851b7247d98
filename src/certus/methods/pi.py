"""Π model: the student agrees with itself under another perturbation."""

from __future__ import annotations

from dataclasses import dataclass

from certus.core.build_context import BuildContext
from certus.core.method import Method
from certus.core.schedules import RampUp
from certus.core.student import See
from certus.core.terms import Consistency, CrossEntropy
from certus.methods.options import at_least, option
from certus.methods.recipe import Recipe
from certus.teachers import StochasticAnswer


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
        80.0, "210ths of the run over which λ rises to its maximum", at_least(0), source="Liu & Tan 2021"
    )


def pi(context: BuildContext, options: Options) -> Method:
    student = context.network(0)
    return Method(
        name="pi",
        students=(student,),
        answers=(student,),
        terms={
            "supervised": CrossEntropy(See(student, "a")),
            "consistency": Consistency(
                See(student, "a"), StochasticAnswer(student, "b"), weight=RampUp(options.weight, options.ramp)
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
