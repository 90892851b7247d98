"""The registry of methods: those of certus, those registered at run time, and those of installed plug-ins."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from importlib.metadata import EntryPoint, entry_points

from certus.errors import UsageError
from certus.methods.recipe import Recipe

GROUP = "certus.methods"  # of the entry points; each names a Recipe or a tuple of them
notices = logging.getLogger("certus")


class Registry(Mapping[str, Recipe]):
    """Recipes by name, in reading order; plug-ins come last.

    Plug-ins are loaded once: when the methods are listed, or when a name is not known without them.
    """

    def __init__(self, recipes: Iterable[Recipe], reserved: Iterable[str] = ()) -> None:
        self._recipes = {recipe.name: recipe for recipe in recipes}
        self._reserved = frozenset(reserved)
        self._plugins_loaded = False

    def __getitem__(self, name: str) -> Recipe:
        if name not in self._recipes:
            self._load_plugins()
        return self._recipes[name]

    def __iter__(self) -> Iterator[str]:
        self._load_plugins()
        return iter(tuple(self._recipes))

    def __len__(self) -> int:
        self._load_plugins()
        return len(self._recipes)

    def __or__(self, other: Mapping[str, Recipe]) -> dict[str, Recipe]:
        return {**self, **other}

    def add(self, recipe: Recipe) -> None:
        """Add a method; refuses a name that is taken and options that are not made by `option`."""
        if not isinstance(recipe, Recipe):
            raise UsageError(f"A method is registered by a certus.methods.Recipe, but this is {recipe!r}.")
        if self._recipes.get(recipe.name) is recipe:
            return
        if recipe.name in self._recipes or recipe.name in self._reserved:
            raise UsageError(f"There is already a method {recipe.name!r}: give your recipe another name.")
        if not is_dataclass(recipe.options):
            raise UsageError(f"The options of method {recipe.name} must be a dataclass, but are {recipe.options!r}.")
        if plain := [f.name for f in fields(recipe.options) if "help" not in f.metadata]:
            raise UsageError(f"Option {plain[0]} of method {recipe.name} must be made by certus.methods.option(…).")
        self._recipes[recipe.name] = recipe

    def _load_plugins(self) -> None:
        if self._plugins_loaded:
            return
        self._plugins_loaded = True  # first, because a plug-in may use the registry while it is loaded
        for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
            self._load(point)

    def _load(self, point: EntryPoint) -> None:
        """A broken plug-in gives a warning and is left out."""
        try:
            loaded = point.load()
            for recipe in loaded if isinstance(loaded, (tuple, list)) else (loaded,):
                self.add(recipe)
        except Exception as error:  # a plug-in's code may raise anything
            package = f" of {point.dist.name}" if point.dist else ""
            reason = str(error).rstrip(".") or "no reason given"
            notices.warning(
                "The plug-in %s%s (%s) could not be loaded (%s: %s): update it, or uninstall it.",
                *(point.name, package, point.value, type(error).__name__, reason),
            )
