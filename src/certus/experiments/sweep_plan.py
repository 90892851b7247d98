"""The plan of a sweep: which methods and settings are searched, on which labels, checked before anything is trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from certus.config import Config, resolve, split_of, steps_per_epoch
from certus.data import Dataset, Part, load
from certus.errors import UsageError
from certus.experiments.cells import Cell, cell_folder
from certus.experiments.sweep_space import Space, parse_axes
from certus.experiments.sweep_study import PRUNERS, the_optuna
from certus.methods import recipe
from certus.methods.options import at_least, one_of
from certus.training.planning import check_length, complete_on

MOST_TRIALS, MOST_SEEDS = 100_000, 10_000


def without_test(data: Dataset) -> Dataset:
    """The same data with no test images."""
    return replace(data, test=Part(data.train.images[:0], data.train.labels[:0]))


@dataclass(frozen=True, eq=False)
class Search:
    """One method and what is searched of it."""

    method: str
    space: Space
    given: Mapping[str, Any]  # the settings that all trials share, those of the user
    data: Dataset
    epochs: float | None

    def resolved(self, values: Mapping[str, Any], seed: int = 0) -> Config:
        """The settings with these values, checked."""
        options = recipe(self.method).defaults()
        own = {name: value for name, value in values.items() if name in options}
        rest = {name: value for name, value in values.items() if name not in options}
        return resolve({**self.given, **rest, "seed": seed, "options": {**self.given["options"], **own}})

    def config(self, values: Mapping[str, Any], seed: int) -> Config:
        """The same, with nothing left to decide."""
        return complete_on(self.data, self.resolved(values, seed), self.epochs)

    def epochs_of_a_run(self, seed: int) -> int:
        config = self.config(self.space.corners()[0], seed)
        return -(-config.steps // steps_per_epoch(config, self.data))

    @cached_property
    def usual(self) -> dict[str, Any]:
        """The values of what is searched, if it were not."""
        config = self.resolved({})
        return {a.name: config.options.get(a.name, getattr(config, a.name, None)) for a in self.space.axes}

    def accepts(self, values: Mapping[str, Any]) -> bool:
        try:
            self.resolved(values)
        except UsageError:
            return False
        return True


@dataclass(frozen=True, eq=False)
class Sweep:
    searches: tuple[Search, ...]
    trials: int
    seeds: tuple[int, ...]
    pruner: str
    out: Path

    def cell(self, search: Search, number: int, values: Mapping[str, Any], seed: int) -> Cell:
        folder = cell_folder(self.out / "trials", f"{search.method}-{number:03}", seed)
        return Cell(folder.path.name, search.method, search.config(values, seed), folder)

    def specification(self, search: Search) -> dict[str, Any]:
        """What must be the same when a sweep goes on."""
        return {
            "settings": {**search.given, "epochs": search.epochs},
            "set": [axis.text for axis in search.space.axes],
            "seeds": list(self.seeds),
            "pruner": self.pruner,
        }


def plan_sweep(
    methods: Sequence[str],
    texts: Sequence[str],
    trials: int = 20,
    seeds: int = 1,
    settings: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    epochs: float | None = None,
    pruner: str = "median",
    out: Path | None = None,
) -> Sweep:
    """Check everything that a sweep is asked for, before anything is trained.

    Args:
        methods: their names; each has those of the searched settings that it knows
        texts: what is searched, in the grammar of `sweep_space`
        trials: of each method; fewer where there are fewer points
        seeds: of each trial, whose error is their mean; counted from `seed` among the settings
        settings, options: of every trial, those that are not the defaults
        epochs: passes over the unlabelled images, instead of `steps` among the settings
        pruner: which trials are stopped early: by the median, by Hyperband or none
        out: the folder of the sweep; by default runs/sweep-DATA-LABELS
    """
    the_optuna()
    settings, options = dict(settings or {}), dict(options or {})
    if not methods or len(set(methods)) < len(methods):
        raise UsageError(f"`methods` must name each method once, but is {', '.join(methods) or 'empty'}.")
    at_least(1, MOST_TRIALS)("trials", trials)
    at_least(1, MOST_SEEDS)("seeds", seeds)
    one_of(*PRUNERS)("pruner", pruner)
    check_length(settings.get("steps") or None, epochs, None)
    recipes = [recipe(name) for name in methods]
    if not texts:
        raise UsageError("`set` is missing, so there is nothing to search: give it as NAME=LOW..HIGH or NAME=V,V,….")
    axes = parse_axes(texts, methods)
    for axis in axes:
        if axis.name in settings or axis.name in options:
            raise UsageError(f"`{axis.name}` is both fixed and searched: leave it out, or out of `set`.")
    for option in options:
        if not any(option in known.defaults() for known in recipes):
            raise UsageError(f"None of {', '.join(methods)} has an option `{option}`.")
    first_seed = settings.pop("seed", 0)
    searches: list[Search] = []
    data: Dataset | None = None
    for known in recipes:
        foreign = {name for other in recipes for name in other.defaults()} - known.defaults().keys()
        space = Space(tuple(axis for axis in axes if axis.name not in foreign))
        own = {name: value for name, value in options.items() if name in known.defaults()}
        given = {**settings, "method": known.name, "threads": 1, "options": own}
        if data is None:
            config = resolve(given)
            data = without_test(load(config.data, config.data_dir, config.size, config.fit))
        search = Search(known.name, space, given, data, epochs)
        for values in space.corners():
            search.resolved(values, first_seed)
        check_validation(search.config(space.corners()[0], first_seed), data)
        searches.append(search)
    config = searches[0].resolved({})
    out = out or Path("runs") / f"sweep-{Path(config.data).name}-{config.labels}"
    return Sweep(tuple(searches), trials, tuple(range(first_seed, first_seed + seeds)), pruner, out)


def check_validation(config: Config, data: Dataset) -> None:
    if not len(split_of(config, data).validation) and not len(data.validation or ()):
        raise UsageError(
            f"{config.data} has no validation images here, and a sweep chooses by them alone: set `validation`."
        )
