"""The settings of a run and the options of the methods, as flags."""

from __future__ import annotations

from dataclasses import fields
from typing import get_type_hints

from certus.cli.flags import Flag
from certus.config import Config
from certus.config.presets import BY_DATA_SET
from certus.config.settings import GROUPS
from certus.methods import METHODS, recipe
from certus.methods.recipe import shown


def config_flags(*skip: str) -> list[Flag]:
    """The settings of a run, except some; those of a group stand together."""
    kinds = get_type_hints(Config)
    flags = [
        Flag(
            f.name,
            kinds[f.name],
            f.metadata["help"],
            default="by data set" if f.name in BY_DATA_SET else shown(f.default),
            group=f.metadata["group"],
            auto=f.metadata["auto"],
        )
        for f in fields(Config)
        if f.name not in ("options", *skip)
    ]
    return sorted(flags, key=lambda flag: GROUPS.index(flag.group))


def option_flags() -> list[Flag]:
    """The options of all methods, which no help page lists together."""
    found: dict[str, Flag] = {}
    for method in METHODS.values():
        kinds = get_type_hints(method.options)
        for f in fields(method.options):
            found.setdefault(f.name, Flag(f.name, kinds[f.name], f.metadata["help"], group=""))
    return list(found.values())


def method_flags(config: Config) -> list[Flag]:
    """The options of one method, with the values that they have in this config."""
    options = recipe(config.method).options
    kinds = get_type_hints(options)
    group = f"options of {config.method}, with their defaults on {config.data}"
    return [
        Flag(f.name, kinds[f.name], f.metadata["help"], shown(config.options[f.name]), group) for f in fields(options)
    ]
