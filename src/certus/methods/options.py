"""The options of a method: a dataclass whose fields `option` makes, and checks of their values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any

from certus.errors import UsageError, unknown

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


def at_least(low: float) -> Check:
    def check(name: str, value: float) -> None:
        if not value >= low:  # so that NaN is refused too
            raise UsageError(f"`{name}` must be at least {low:g}, but is {value:g}.")

    return check


def between(low: float, high: float) -> Check:
    def check(name: str, value: float) -> None:
        if not low <= value <= high:
            raise UsageError(f"`{name}` must be between {low:g} and {high:g}, but is {value:g}.")

    return check


def one_of(*choices: str) -> Check:
    def check(name: str, value: str) -> None:
        if value not in choices:
            raise unknown(name.replace("_", " "), value, choices)

    return check
