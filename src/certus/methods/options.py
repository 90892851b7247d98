"""The options of a method: a dataclass whose fields `option` makes, and checks of their values."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import field
from typing import Any

import numpy as np

from certus.errors import UsageError, unknown
from certus.text import brief

LARGEST = 1e9  # of a number that has no limit of its own

Check = Callable[[str, Any], None]  # (name, value); raises UsageError


def option(
    default: Any,
    help: str,
    check: Check = lambda name, value: None,  # noqa: ARG005
    idle: Callable[[Any], str | None] = lambda options: None,  # noqa: ARG005
    source: str = "",
) -> Any:
    """A field of a method's options.

    `help` describes it in a few words. `check` refuses wrong values. `idle` maps all options to the reason why this one
    would change nothing, or None. `source` says where the default comes from; by default it is the method's reference.
    """
    return field(default=default, metadata={"help": help, "check": check, "idle": idle, "source": source})


def typed(name: str, value: Any, kind: type, where: str = "") -> Any:
    """The value, if it is of this type; whole numbers serve as floats, numpy's numbers as Python's."""
    value = value.item() if isinstance(value, np.generic) else value
    if kind is float and type(value) is int and abs(value) < 2**63:
        value = float(value)
    fits = type(value) is kind
    if not fits:
        raise UsageError(f"`{name}`{where} must be of type {kind.__name__}, but is {brief(value)}.")
    if kind is float and not math.isfinite(value):
        raise UsageError(f"`{name}`{where} must be a finite number, but is {value:g}.")
    if kind is str and "\0" in value:
        raise UsageError(f"`{name}`{where} must not hold a null character, but is {brief(value)}.")
    return value


def at_least(low: float, most: float = LARGEST) -> Check:
    def check(name: str, value: float) -> None:
        if not value >= low:  # so that NaN is refused too
            raise UsageError(f"`{name}` must be at least {low:g}, but is {brief(value)}.")
        if value > most:
            raise UsageError(f"`{name}` must be at most {most:,.10g}, but is {brief(value)}.")

    return check


def between(low: float, high: float) -> Check:
    def check(name: str, value: float) -> None:
        if not low <= value <= high:
            raise UsageError(f"`{name}` must be between {low:g} and {high:,.10g}, but is {brief(value)}.")

    return check


def one_of(*choices: str) -> Check:
    def check(name: str, value: str) -> None:
        if value not in choices:
            raise unknown(name.replace("_", " "), value, choices)

    return check
