"""Every method by name, in the order in which a reader meets them."""

from __future__ import annotations

from certus.errors import unknown
from certus.methods import ccl, mean_teacher, pi, rotation, supervised
from certus.methods.recipe import Recipe

METHODS: dict[str, Recipe] = {
    recipe.name: recipe for family in (supervised, pi, mean_teacher, ccl) for recipe in family.RECIPES
}
PRETRAINING: dict[str, Recipe] = {recipe.name: recipe for recipe in rotation.RECIPES}


def recipe(name: str) -> Recipe:
    if name not in METHODS | PRETRAINING:
        raise unknown("method", name, METHODS)
    return (METHODS | PRETRAINING)[name]


__all__ = ["METHODS", "PRETRAINING", "Recipe", "recipe"]
