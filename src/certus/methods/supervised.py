"""Supervised only: learn from the labelled images alone."""

from __future__ import annotations

from dataclasses import dataclass

from certus.core.build_context import BuildContext
from certus.core.method import Method
from certus.core.student import See
from certus.core.terms import CrossEntropy
from certus.methods.recipe import Recipe


@dataclass(frozen=True)
class Options:
    """Supervised training has no options."""


def supervised(context: BuildContext, options: Options) -> Method:  # noqa: ARG001 (every method has one signature)
    student = context.network(0)
    kind = "weak" if context.labelled_view == "weak" else "mixed"  # all images of its batches are labelled
    return Method(
        name="supervised",
        students=(student,),
        answers=(student,),
        terms={"supervised": CrossEntropy(See(student, "a", kind), context.smoothing)},
        sees="labelled",
    )


RECIPES = (
    Recipe(
        "supervised",
        "the labelled images alone: the baseline for every other method",
        "the paper's supervised-only row",
        Options,
        supervised,
    ),
)
