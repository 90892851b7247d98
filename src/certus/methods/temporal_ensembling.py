"""Temporal ensembling: the student agrees with the average of its earlier answers to the same image."""

from __future__ import annotations

from dataclasses import dataclass

from certus.core.build_context import BuildContext
from certus.core.method import Method
from certus.core.schedules import RampUp
from certus.core.student import See
from certus.core.terms import Consistency, CrossEntropy
from certus.methods.options import at_least, between, option
from certus.methods.recipe import Recipe
from certus.teachers import Ensemble

WEIGHT = "Laine & Aila 2017: 30 on the mean over ten classes, 3 on their sum"
RAMP = "Laine & Aila 2017: 80 of 300 epochs"


@dataclass(frozen=True)
class Options:
    """The options of temporal ensembling."""

    weight: float = option(3.0, "λ_max, the weight of the consistency term", at_least(0), source=WEIGHT)
    ramp: float = option(80.0, "epochs of the `clock` over which λ rises to its maximum", at_least(0), source=RAMP)
    alpha: float = option(0.6, "α, momentum of the average over visits of an image", between(0, 0.999))


def temporal_ensembling(context: BuildContext, options: Options) -> Method:
    student = context.network(0)
    ensemble = Ensemble(student, "a", len(context.labels), context.classes, options.alpha)
    return Method(
        name="temporal-ensembling",
        students=(student,),
        answers=(student,),
        followers=(ensemble,),
        terms={
            "supervised": CrossEntropy(See(student, "a"), context.smoothing),
            "consistency": Consistency(See(student, "a"), ensemble, weight=RampUp(options.weight, options.ramp)),
        },
    )


RECIPES = (
    Recipe(
        "temporal-ensembling",
        "the student agrees with the average of its earlier answers to each image",
        "Laine & Aila 2017, Temporal Ensembling for Semi-Supervised Learning",
        Options,
        temporal_ensembling,
    ),
)
