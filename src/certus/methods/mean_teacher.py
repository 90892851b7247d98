"""Mean Teacher: the student agrees with the moving average of its own past."""

from __future__ import annotations

from certus.method import Method
from certus.methods.circle import Options, circle
from certus.methods.recipe import Network, Recipe
from certus.teachers import Clean


def mean_teacher(network: Network, options: Options) -> Method:
    return circle("mean-teacher", network, options, Clean)


RECIPES = (
    Recipe(
        "mean-teacher",
        "the student agrees with the moving average of its weights",
        "Tarvainen & Valpola 2017, Mean teachers are better role models",
        Options,
        mean_teacher,
    ),
)
