"""What a method is called, where it comes from, which options it takes and which values of them make sense."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from certus.core.build_context import BuildContext
from certus.core.method import Method
from certus.errors import UsageError, unknown


@dataclass(frozen=True)
class Recipe:
    """A method by name: `build(context, options)` makes it."""

    name: str
    summary: str
    reference: str
    options: type
    build: Callable[[BuildContext, Any], Method]
    classes: int = 0  # of its own task; 0: those of the data

    @property
    def cited(self) -> str:
        """Authors and year."""
        found = re.match(r".*?\b\d{4}\b", self.reference)
        return found.group() if found else self.reference

    def defaults(self) -> dict[str, Any]:
        return {f.name: f.default for f in fields(self.options)}

    def configure(self, given: Mapping[str, Any]) -> Any:
        """The options of this method from those that the user gave; refuses one that would change nothing."""
        takes = self.defaults()
        for name in given:
            if name not in takes:
                own = f"It takes: {', '.join(map(flag, takes))}." if takes else "It takes no options of its own."
                raise UsageError(f"Method {self.name} has no option {flag(name)}. {own}")
        options = self.options(**given)
        for f in fields(self.options):
            reason = f.metadata["idle"](options)
            if reason and given.get(f.name, f.default) != f.default:
                raise UsageError(f"{flag(f.name)} would change nothing: {reason}. Leave it out.")
            f.metadata["check"](f.name, getattr(options, f.name))
        return options


def flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def shown(value: Any) -> str:
    """An option's value for people."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)


Check = Callable[[str, Any], None]


def option(
    default: Any,
    help: str,
    check: Check = lambda name, value: None,  # noqa: ARG005
    idle: Callable[[Any], str | None] = lambda options: None,  # noqa: ARG005
    source: str = "",
) -> Any:
    """An option of a method: its default, what it is, which values it takes, when it would change nothing, and where
    the default comes from (nothing: the method's own reference)."""
    return field(default=default, metadata={"help": help, "check": check, "idle": idle, "source": source})


def at_least(low: float) -> Check:
    def check(name: str, value: float) -> None:
        if not value >= low:  # so that NaN is refused too
            raise UsageError(f"{flag(name)} must be at least {low:g}, but is {value:g}.")

    return check


def between(low: float, high: float) -> Check:
    def check(name: str, value: float) -> None:
        if not low <= value <= high:
            raise UsageError(f"{flag(name)} must lie between {low:g} and {high:g}, but is {value:g}.")

    return check


def one_of(*choices: str) -> Check:
    def check(name: str, value: str) -> None:
        if value not in choices:
            raise unknown(name.replace("_", " "), value, choices)

    return check
