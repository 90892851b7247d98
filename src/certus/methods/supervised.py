"""Supervised-only: what the few labels give by themselves."""

from __future__ import annotations

from dataclasses import dataclass

from certus.method import CrossEntropy, Method, See
from certus.methods.recipe import Network, Recipe


@dataclass(frozen=True)
class Options:
    """None: there is nothing but the labels."""


def supervised(network: Network, options: Options) -> Method:  # noqa: ARG001 (every method has one signature)
    student = network(0)
    return Method(
        name="supervised",
        students=(student,),
        answers=(student,),
        terms={"supervised": CrossEntropy(See(student, "a"))},
        sees="labelled",
    )


RECIPES = (
    Recipe(
        "supervised",
        "the labelled images alone: the line that every other method must beat",
        "the paper's supervised-only row",
        Options,
        supervised,
    ),
)
