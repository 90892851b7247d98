"""The command line's flags: made from the config's settings and the methods' options, and read back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, fields, is_dataclass, make_dataclass
from typing import Annotated, Any, get_type_hints

from tyro.conf import arg

from certus.config import Config
from certus.config.presets import PRESETS
from certus.errors import unknown
from certus.methods import METHODS
from certus.methods.recipe import flag

POSITIONAL = ("run", "runs", "pictures", "action", "experiment")


def settings(name: str, doc: str, skip: Sequence[str] = ()) -> Any:
    """The config's settings as flags."""
    kinds = get_type_hints(Config)
    preset = {key for values in PRESETS.values() for key in values}
    flags = []
    for f in fields(Config):
        if f.name in ("options", *skip):
            continue
        hint = "(default: by data set)" if f.name in preset else f"(default: {f.default})"
        kind: Any = kinds[f.name]
        described = Annotated[kind, arg(help=f.metadata["help"], help_behavior_hint=hint)]
        flags.append((f.name, described, field(default=f.default)))
    made = make_dataclass(name, flags, frozen=True)
    made.__doc__ = doc
    return made


def method_options() -> Any:
    """Every option that some method takes, as a flag that says which."""
    found: dict[str, tuple[Any, str, dict[str, Any]]] = {}
    for recipe in METHODS.values():
        kinds = get_type_hints(recipe.options)
        for f in fields(recipe.options):
            _, _, defaults = found.setdefault(f.name, (kinds[f.name], f.metadata["help"], {}))
            defaults[recipe.name] = f.default
    flags = []
    for name, (kind, text, defaults) in found.items():
        first = next(iter(defaults.values()))
        same = all(v == first for v in defaults.values())
        shown = f"default: {first}" if same else "default: by method"
        hint = f"({', '.join(defaults)}; {shown})"
        flags.append((name, Annotated[kind, arg(help=text, help_behavior_hint=hint)], field(default=first)))
    made = make_dataclass("Options", flags, frozen=True)
    made.__doc__ = "Of the method; one that a method does not take, or that would change nothing, is refused."
    return made


def flags_of(command: type) -> dict[str, str]:
    """Every flag of a command -> the field that it sets."""
    hints = get_type_hints(command)
    found: dict[str, str] = {}
    for f in fields(command):
        kind = hints[f.name]
        if f.name in POSITIONAL:
            continue
        if is_dataclass(kind):
            found |= flags_of(kind)  # type: ignore[arg-type]
        else:
            found[flag(f.name)] = f.name
            if kind is bool:
                found["--no-" + flag(f.name)[2:]] = f.name
    return found


def given_flags(command: type, argv: Sequence[str]) -> frozenset[str]:
    """The names of the flags that were typed; an unknown one is refused with the nearest name."""
    known = flags_of(command)
    given = set()
    for word in argv:
        name = word.split("=", 1)[0].replace("_", "-")
        if name in known:
            given.add(known[name])
        elif name.startswith("--") and name not in ("--help", "--version"):
            raise unknown("option", name, known)
    return frozenset(given)
