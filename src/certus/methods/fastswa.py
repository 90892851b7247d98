"""Mean teacher with fastSWA: the mean of the student's weights along a cyclical end of training answers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from certus.core.build_context import BuildContext
from certus.core.method import Method
from certus.core.schedules import EPOCHS, cosine
from certus.methods import circle, mean_teacher
from certus.methods.recipe import Recipe, at_least, between, option
from certus.teachers import Average


@dataclass(frozen=True)
class Options(circle.Options):
    turn: float = option(180.0, "ℓ, the 210th of the run at which the learning rate starts its cycles", between(1, 210))
    cycle: float = option(30.0, "c, length of a cycle of the learning rate", at_least(1))
    every: float = option(3.0, "k, how often the weights are averaged, from ℓ − c on", at_least(0.01))


def cyclical(fraction: float, turn: float, cycle: float) -> float:
    """½(1 + cos πe/210) up to e = ℓ; from there on its last c epochs again and again."""
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
        "mean teacher; the mean of the student's weights along a cyclical end of training answers",
        "Athiwaratkun, Finzi, Izmailov & Wilson 2019, There Are Many Consistent Explanations of Unlabeled Data",
        Options,
        fastswa,
    ),
)
