"""Deep label propagation: labels are propagated over a graph of features, and the student learns them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from certus.core.build_context import BuildContext
from certus.core.losses import cross_entropy
from certus.core.method import Method
from certus.core.schedules import Constant
from certus.core.student import See, SingleViewRead
from certus.core.terms import Consistency, CrossEntropy
from certus.methods import circle, mean_teacher
from certus.methods.options import at_least, between, one_of, option
from certus.methods.recipe import Recipe
from certus.teachers import Propagation

START = "Iscen, Tolias, Avrithis & Chum 2019: 180 passes over the labelled images, about 4 % of their steps"


@dataclass(frozen=True)
class Options:
    """The options of label propagation."""

    spread: float = option(1.0, "weight of the propagated labels", at_least(0))
    start: float = option(12.0, "epochs of the `clock` before the first graph is built", at_least(0), source=START)
    neighbours: int = option(50, "k, neighbours of each image in the graph", at_least(1))
    over: str = option(
        "features",
        "neighbours in the student's features, which change, or in the inputs, by distance (for vectors) or by angle "
        "(for vectors of many numbers): features, inputs or angles",
        one_of("features", "inputs", "angles"),
        source="inputs: ours, with local scales as in Zelnik-Manor & Perona 2004",
    )
    gamma: float = option(
        3.0,
        "γ, exponent of the similarities",
        at_least(0),
        lambda o: "`over` inputs has its own similarities" if o.over == "inputs" else None,
    )
    near: bool = option(
        False,
        "find neighbours again in the metric in which they are near",
        source="ours, in the spirit of linear discriminant analysis",
    )
    alpha: float = option(0.99, "α of the diffusion", between(0, 0.9999))
    regression: float = option(
        0.0,
        "ρ, multiply what arrives by (answer of logistic regression)^β, β = ρn/(1 + ρn) for n labels per class, and "
        "learn the share β of it as probabilities",
        at_least(0),
        source="ours, a product of experts as in Hinton 2002",
    )
    damp: bool = option(
        False, "damping: an uncertain node passes on less of its value", source="Liu & Tan 2021, future work"
    )
    damp_draws: int = option(
        5,
        "Monte-Carlo draws that rank the nodes by certainty",
        at_least(2, 10_000),
        lambda o: None if o.damp else "`damp` is off",
        source="ours",
    )


@dataclass(frozen=True)
class OnMeanTeacher(Options, circle.Options):
    """The options of label propagation and of Mean Teacher."""


def propagated(student: nn.Module, view: str, context: BuildContext, o: Any) -> tuple[Propagation, Consistency]:
    """The source of propagated labels for one student, and the term in which it learns them."""
    source = Propagation(
        student,
        context,
        start=o.start,
        neighbours=o.neighbours,
        gamma=o.gamma,
        alpha=o.alpha,
        draws=o.damp_draws if o.damp else 0,
        over=o.over,
        near=o.near,
        regression=o.regression,
    )
    return source, Consistency(See(student, view), source, distance=cross_entropy, weight=Constant(o.spread))


def label_propagation(context: BuildContext, options: Options) -> Method:
    student = context.network(0)
    source, term = propagated(student, "a", context, options)
    return Method(
        name="label-propagation",
        students=(student,),
        answers=(student,),
        followers=(source,),
        terms={"supervised": CrossEntropy(See(student, "a"), context.smoothing), "propagated": term},
    )


def on_mean_teacher(context: BuildContext, options: OnMeanTeacher) -> Method:
    method = mean_teacher.mean_teacher(context, options)
    terms, followers = dict(method.terms), list(method.followers)
    for name, consistency in method.terms.items():
        if isinstance(consistency, Consistency) and isinstance(consistency.read, SingleViewRead):
            source, term = propagated(consistency.student, consistency.read.view, context, options)
            terms[name.replace("consistency", "propagated")] = term
            followers.append(source)
    return replace(method, name="mean-teacher-label-propagation", terms=terms, followers=tuple(followers))


REFERENCE = "Iscen, Tolias, Avrithis & Chum 2019, Label Propagation for Deep Semi-supervised Learning"

RECIPES = (
    Recipe(
        "label-propagation",
        "labels are propagated over a graph of features, and the student learns them",
        REFERENCE,
        Options,
        label_propagation,
    ),
    Recipe(
        "mean-teacher-label-propagation",
        "Mean Teacher with labels that are propagated over a graph of features",
        REFERENCE,
        OnMeanTeacher,
        on_mean_teacher,
    ),
)
