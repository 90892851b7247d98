"""A method's recipe: its name, its reference, its options, and the function that builds it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, get_type_hints

from certus.core.build_context import BuildContext
from certus.core.method import Method
from certus.errors import UsageError
from certus.methods.options import typed


@dataclass(frozen=True)
class Recipe:
    """A method by name: `build(context, options)` makes it."""

    name: str
    summary: str
    reference: str
    options: type  # a dataclass whose fields are made by `certus.methods.option`
    build: Callable[[BuildContext, Any], Method]
    classes: int = 0  # number of classes of its own task; 0: the classes of the data

    @property
    def cited(self) -> str:
        """Authors and year."""
        found = re.match(r".*?\b\d{4}\b", self.reference)
        return found.group() if found else self.reference

    def defaults(self) -> dict[str, Any]:
        return {f.name: f.default for f in fields(self.options)}

    def configure(self, given: Mapping[str, Any]) -> Any:
        """This method's options, with the user's values; refuses a wrong value and one that would change nothing."""
        known = self.defaults()
        for name in given:
            if name not in known:
                own = f"Its options: {', '.join(f'`{o}`' for o in known)}." if known else "It has no options."
                raise UsageError(f"Method {self.name} has no option `{name}`. {own}")
        kinds = get_type_hints(self.options)
        plain = (bool, int, float, str)
        options = self.options(
            **{name: typed(name, v, kinds[name]) if kinds[name] in plain else v for name, v in given.items()}
        )
        for f in fields(self.options):
            reason = f.metadata["idle"](options)
            if reason and given.get(f.name, f.default) != f.default:
                raise UsageError(f"`{f.name}` would change nothing: {reason}. Leave it out.")
            f.metadata["check"](f.name, getattr(options, f.name))
        return options

    def complete(self, given: Mapping[str, Any], preset: Mapping[str, Any]) -> dict[str, Any]:
        """Every option: the user's value, else the preset's, else the default. A preset that would change nothing next
        to the user's values is left out, so that a saved run can be read again."""
        self.configure(given)
        options = self.options(**{**preset, **given})
        idle = {f.name: f.default for f in fields(self.options) if f.name not in given and f.metadata["idle"](options)}
        return {**self.defaults(), **preset, **given, **idle}


def shown(value: Any) -> str:
    """An option's value as text."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)
