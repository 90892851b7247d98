"""Every method by name, in the order in which a reader meets them: the paper's table, then what came after it."""

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
from certus.methods.recipe import Recipe

FAMILIES = (
    *(supervised, pseudo_label, pi, temporal_ensembling, vat, mean_teacher, sntg, ma_dnn, label_propagation),
    *(co_training, fastswa, wcp, dual_student, ccl, fixmatch),
)
METHODS: dict[str, Recipe] = {recipe.name: recipe for family in FAMILIES for recipe in family.RECIPES}
PRETRAINING: dict[str, Recipe] = {recipe.name: recipe for recipe in rotation.RECIPES}


def recipe(name: str) -> Recipe:
    if name not in METHODS | PRETRAINING:
        raise unknown("method", name, METHODS)
    return (METHODS | PRETRAINING)[name]


__all__ = ["METHODS", "PRETRAINING", "Recipe", "recipe"]
