"""Pseudo-label and entropy minimisation: the student becomes more certain of its own answers."""

from __future__ import annotations

from dataclasses import dataclass

from certus.core.build_context import BuildContext
from certus.core.losses import cross_entropy
from certus.core.method import Method
from certus.core.refinements import Harden, Threshold
from certus.core.schedules import RampUp
from certus.core.student import See
from certus.core.terms import Consistency, CrossEntropy, Entropy
from certus.methods.options import at_least, between, option
from certus.methods.recipe import Recipe
from certus.teachers import Own


@dataclass(frozen=True)
class Options:
    """The options of entropy minimisation."""

    weight: float = option(1.0, "weight of the unsupervised term", at_least(0), source="Oliver et al. 2018")
    ramp: float = option(
        120.0,
        "epochs of the `clock` over which the weight rises to its maximum",
        at_least(0),
        source="Oliver et al. 2018",
    )


@dataclass(frozen=True)
class PseudoLabel(Options):
    """The options of pseudo-label."""

    threshold: float = option(0.0, "lowest confidence of a pseudo-label", between(0, 1))


def pseudo_label(context: BuildContext, options: PseudoLabel) -> Method:
    student = context.network(0)
    return Method(
        name="pseudo-label",
        students=(student,),
        answers=(student,),
        terms={
            "supervised": CrossEntropy(See(student, "a"), context.smoothing),
            "pseudo": Consistency(
                See(student, "a"),
                Own(student, "a"),
                (Threshold(options.threshold), Harden()),
                distance=cross_entropy,
                weight=RampUp(options.weight, options.ramp),
            ),
        },
    )


def entropy_minimisation(context: BuildContext, options: Options) -> Method:
    student = context.network(0)
    return Method(
        name="entropy-minimisation",
        students=(student,),
        answers=(student,),
        terms={
            "supervised": CrossEntropy(See(student, "a"), context.smoothing),
            "entropy": Entropy(See(student, "a"), RampUp(options.weight, options.ramp)),
        },
    )


RECIPES = (
    Recipe(
        "pseudo-label",
        "the student learns its own answers as labels",
        "Lee 2013, Pseudo-Label: The Simple and Efficient Semi-Supervised Learning Method for Deep Neural Networks",
        PseudoLabel,
        pseudo_label,
    ),
    Recipe(
        "entropy-minimisation",
        "the student learns to be certain of its answers",
        "Grandvalet & Bengio 2005, Semi-supervised Learning by Entropy Minimization",
        Options,
        entropy_minimisation,
    ),
)
