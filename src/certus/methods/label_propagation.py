"""Deep label propagation: the few labels spread over a graph of features, and the student learns what arrives."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from certus.core.build_context import BuildContext
from certus.core.losses import cross_entropy
from certus.core.method import Method
from certus.core.schedules import Constant
from certus.core.student import Looking, See
from certus.core.terms import Consistency, CrossEntropy
from certus.methods import circle, mean_teacher
from certus.methods.recipe import Recipe, at_least, between, option
from certus.teachers import Propagation

START = "Iscen, Tolias, Avrithis & Chum 2019: 180 passes over the labelled images, about 4 % of their steps"


@dataclass(frozen=True)
class Spread:
    spread: float = option(1.0, "weight of the propagated labels", at_least(0))
    start: float = option(10.0, "210ths of the run before the first graph", at_least(0), source=START)
    neighbours: int = option(50, "k of the graph of nearest neighbours", at_least(1))
    gamma: float = option(3.0, "γ, exponent of the similarities", at_least(0))
    alpha: float = option(0.99, "α of the diffusion", between(0, 0.9999))
    damp: bool = option(
        False, "an uncertain node passes on less of what it holds", source="Liu & Tan 2021, future work"
    )
    damp_draws: int = option(
        5,
        "Monte-Carlo draws by which a node's certainty is ranked",
        at_least(2),
        lambda o: None if o.damp else "--damp is off",
        source="ours",
    )


@dataclass(frozen=True)
class OnMeanTeacher(Spread, circle.Options):
    """Those of mean teacher and the graph's."""


def propagated(student: nn.Module, view: str, context: BuildContext, o: Any) -> tuple[Propagation, Consistency]:
    source = Propagation(
        student,
        context,
        start=o.start,
        neighbours=o.neighbours,
        gamma=o.gamma,
        alpha=o.alpha,
        draws=o.damp_draws if o.damp else 0,
    )
    return source, Consistency(See(student, view), source, distance=cross_entropy, weight=Constant(o.spread))


def label_propagation(context: BuildContext, options: Spread) -> Method:
    student = context.network(0)
    source, term = propagated(student, "a", context, options)
    return Method(
        name="label-propagation",
        students=(student,),
        answers=(student,),
        followers=(source,),
        terms={"supervised": CrossEntropy(See(student, "a")), "propagated": term},
    )


def on_mean_teacher(context: BuildContext, options: OnMeanTeacher) -> Method:
    method = mean_teacher.mean_teacher(context, options)
    terms, followers = dict(method.terms), list(method.followers)
    for name, consistency in method.terms.items():
        if isinstance(consistency, Consistency) and isinstance(consistency.read, Looking):
            source, term = propagated(consistency.student, consistency.read.view, context, options)
            terms[name.replace("consistency", "propagated")] = term
            followers.append(source)
    return replace(method, name="mean-teacher-label-propagation", terms=terms, followers=tuple(followers))


REFERENCE = "Iscen, Tolias, Avrithis & Chum 2019, Label Propagation for Deep Semi-supervised Learning"

RECIPES = (
    Recipe(
        "label-propagation",
        "the few labels spread over a graph of features, and the student learns what arrives",
        REFERENCE,
        Spread,
        label_propagation,
    ),
    Recipe(
        "mean-teacher-label-propagation",
        "mean teacher, and labels that spread over a graph of features",
        REFERENCE,
        OnMeanTeacher,
        on_mean_teacher,
    ),
)
