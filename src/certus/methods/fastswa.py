"""Mean Teacher with fastSWA: the mean of the student's weights over the end of training answers.

There the learning rate goes through cycles, so that the averaged weights differ from each other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from certus.core.build_context import BuildContext
from certus.core.method import Method
from certus.core.schedules import EPOCHS, cosine
from certus.methods import circle, mean_teacher
from certus.methods.options import at_least, between, option
from certus.methods.recipe import Recipe
from certus.teachers import Average


@dataclass(frozen=True)
class Options(circle.Options):
    """The options of Mean Teacher, and of the cycles and averages, in 210ths of the run."""

    turn: float = option(180.0, "ℓ, 210ths of the run before the learning rate starts its cycles", between(1, 210))
    cycle: float = option(30.0, "c, length of a cycle of the learning rate, in 210ths of the run", at_least(1))
    every: float = option(3.0, "k, 210ths of the run between two averages, from ℓ − c on", at_least(0.01))


def cyclical(fraction: float, turn: float, cycle: float) -> float:
    """½(1 + cos πe/210) up to e = ℓ; after that its last c epochs repeat."""
    e = EPOCHS * fraction
    return cosine((e if e < turn else max(turn - cycle, 0) + (e - turn) % cycle) / EPOCHS)


def fastswa(context: BuildContext, options: Options) -> Method:
    method = mean_teacher.mean_teacher(context, options)
    start = max(options.turn - options.cycle, 0)
    averages = tuple(Average(student, context, start, options.every) for student in method.students)
    return replace(
        method,
        name="mean-teacher-fastswa",
        followers=(*method.followers, *averages),
        answers=tuple(average.net for average in averages),
        pace=partial(cyclical, turn=options.turn, cycle=options.cycle),
    )


RECIPES = (
    Recipe(
        "mean-teacher-fastswa",
        "Mean Teacher that answers with the mean of the student's weights over the end of training",
        "Athiwaratkun, Finzi, Izmailov & Wilson 2019, There Are Many Consistent Explanations of Unlabeled Data",
        Options,
        fastswa,
    ),
)
