"""FixMatch: a confident answer to the weak view is the label of the strong view."""

from __future__ import annotations

from dataclasses import dataclass

from certus.core.build_context import BuildContext
from certus.core.losses import cross_entropy
from certus.core.method import Method
from certus.core.refinements import Harden, Threshold
from certus.core.schedules import RampUp
from certus.core.student import See
from certus.core.terms import Consistency, CrossEntropy
from certus.methods.options import at_least, between, one_of, option
from certus.methods.recipe import Recipe
from certus.teachers import EMA, Own, StochasticAnswer


@dataclass(frozen=True)
class Options:
    """The options of FixMatch."""

    weight: float = option(1.0, "λ_u, the weight of the pseudo-label term", at_least(0))
    ramp: float = option(0.0, "epochs of the `clock` over which the weight rises to its maximum", at_least(0))
    threshold: float = option(0.95, "τ, lowest confidence of a pseudo-label", between(0, 1))
    student_view: str = option("strong", "view that learns the pseudo-label: strong or weak", one_of("strong", "weak"))
    decay: float = option(
        0.999,
        "α of the moving average of the weights, the network that answers",
        between(0, 1),
        lambda o: "`horizon` replaces it" if o.horizon else None,
    )
    horizon: float = option(
        0.0, "share of the steps so far that the average looks back over; 0: by `decay`", between(0, 1), source="ours"
    )


def fixmatch(context: BuildContext, options: Options) -> Method:
    student = context.network(0)
    answering = EMA(student, options.decay, options.horizon)
    strong = options.student_view == "strong"
    read = See(student, "a", "mixed" if strong else "weak")  # one forward for labels and pseudo-labels
    return Method(
        name="fixmatch",
        students=(student,),
        answers=(answering.net,),
        followers=(answering,),
        terms={
            "supervised": CrossEntropy(read, context.smoothing),
            "pseudo": Consistency(
                read,
                StochasticAnswer(student, "b") if strong else Own(student, "a"),
                (Threshold(options.threshold), Harden()),
                distance=cross_entropy,
                weight=RampUp(options.weight, options.ramp),
            ),
        },
    )


RECIPES = (
    Recipe(
        "fixmatch",
        "a confident answer to the weak view is the label of the strong view",
        "Sohn et al. 2020, FixMatch: Simplifying Semi-Supervised Learning with Consistency and Confidence",
        Options,
        fixmatch,
    ),
)
