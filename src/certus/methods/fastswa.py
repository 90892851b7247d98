"""Mean Teacher with fastSWA: the mean of the student's weights over the end of training answers.

There the learning rate goes through cycles, so that the averaged weights differ from each other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from certus.core.build_context import BuildContext
from certus.core.method import Method
from certus.core.schedules import cosine
from certus.methods import circle, mean_teacher
from certus.methods.options import at_least, option
from certus.methods.recipe import Recipe
from certus.teachers import Average


@dataclass(frozen=True)
class Options(circle.Options):
    """The options of Mean Teacher, and of the cycles and averages, in epochs of the `clock`."""

    turn: float = option(180.0, "ℓ, epochs of the `clock` before the learning rate starts its cycles", at_least(1))
    fall: float = option(210.0, "ℓ₀, epochs in which the learning rate would fall to 0 without cycles", at_least(1))
    cycle: float = option(30.0, "c, epochs in a cycle of the learning rate", at_least(1))
    every: float = option(3.0, "k, epochs between two averages, from ℓ − c on", at_least(0.01))


def cyclical(e: float, turn: float, fall: float, cycle: float) -> float:
    """½(1 + cos πe/ℓ₀) up to e = ℓ; after that its last c epochs repeat."""
    return cosine(min((e if e < turn else max(turn - cycle, 0) + (e - turn) % cycle) / fall, 1.0))


def fastswa(context: BuildContext, options: Options) -> Method:
    def pace(fraction: float) -> float:
        return cyclical(context.epochs * fraction, options.turn, options.fall, options.cycle)

    method = mean_teacher.mean_teacher(context, options)
    start = max(options.turn - options.cycle, 0)
    averages = tuple(Average(student, context, start, options.every) for student in method.students)
    return replace(
        method,
        name="mean-teacher-fastswa",
        followers=(*method.followers, *averages),
        answers=tuple(average.net for average in averages),
        pace=pace,
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
