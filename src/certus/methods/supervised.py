"""Supervised-only: what the few labels give by themselves."""

from __future__ import annotations

from dataclasses import dataclass

from certus.material import Material
from certus.method import CrossEntropy, Method
from certus.methods.recipe import Recipe
from certus.reads import See


@dataclass(frozen=True)
class Options:
    """None: there is nothing but the labels."""


def supervised(material: Material, options: Options) -> Method:  # noqa: ARG001 (every method has one signature)
    student = material.network(0)
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
