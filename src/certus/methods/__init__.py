"""Every method by name, in reading order: the paper's table, then what came after it, then plug-ins."""

from __future__ import annotations

from certus.errors import unknown
from certus.methods import (
    ccl,
    co_training,
    dual_student,
    fastswa,
    fixmatch,
    label_propagation,
    ma_dnn,
    mean_teacher,
    pi,
    pseudo_label,
    rotation,
    sntg,
    supervised,
    temporal_ensembling,
    vat,
    wcp,
)
from certus.methods.options import at_least, between, one_of, option
from certus.methods.recipe import Recipe
from certus.methods.registry import Registry

FAMILIES = (
    *(supervised, pseudo_label, pi, temporal_ensembling, vat, mean_teacher, sntg, ma_dnn, label_propagation),
    *(co_training, fastswa, wcp, dual_student, ccl, fixmatch),
)
PRETRAINING: dict[str, Recipe] = {recipe.name: recipe for recipe in rotation.RECIPES}
METHODS = Registry((recipe for family in FAMILIES for recipe in family.RECIPES), reserved=PRETRAINING)


def recipe(name: str) -> Recipe:
    if name in PRETRAINING:
        return PRETRAINING[name]
    if name not in METHODS:
        raise unknown("method", name, METHODS)
    return METHODS[name]


def register(recipe: Recipe) -> None:
    """Add a method from outside certus, for this process.

    A package makes its methods known to every process, and to the command line, by an entry point of the group
    "certus.methods" that names a Recipe or a tuple of them:

        [project.entry-points."certus.methods"]
        my-method = "my_package.my_method:RECIPES"
    """
    METHODS.add(recipe)


__all__ = [
    "METHODS",
    "PRETRAINING",
    "Recipe",
    "at_least",
    "between",
    "one_of",
    "option",
    "recipe",
    "register",
]
