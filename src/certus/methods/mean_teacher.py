"""Mean Teacher: the student agrees with a teacher, the moving average of its weights."""

from __future__ import annotations

from certus.core.build_context import BuildContext
from certus.core.method import Method
from certus.methods.circle import Options, circle
from certus.methods.recipe import Recipe
from certus.teachers import Clean


def mean_teacher(context: BuildContext, options: Options) -> Method:
    return circle("mean-teacher", context, options, Clean)


RECIPES = (
    Recipe(
        "mean-teacher",
        "the student agrees with a teacher, the moving average of its weights",
        "Tarvainen & Valpola 2017, Mean teachers are better role models",
        Options,
        mean_teacher,
    ),
)
