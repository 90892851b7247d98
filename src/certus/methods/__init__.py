"""Every method by name; importing a family's file registers it."""

from certus.methods import ccl, mean_teacher, pi, supervised
from certus.methods.registry import METHODS, Recipe, recipe

__all__ = ["METHODS", "Recipe", "ccl", "mean_teacher", "pi", "recipe", "supervised"]
