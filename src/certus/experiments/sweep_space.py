"""What a sweep searches: the grammar of its settings, and which values each of them may take.

weight=1..30:log      a range, searched on a logarithmic scale
dropout=0.1..0.5      a range; of whole numbers where the setting is one
ramp=20,80,160        these values
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, product
from typing import Any, get_type_hints

from certus.config import Config
from certus.errors import UsageError, unknown
from certus.methods import recipe
from certus.methods.recipe import shown
from certus.text import brief

FORMS = "NAME=LOW..HIGH, NAME=LOW..HIGH:log or NAME=VALUE,VALUE,…"
RANGE = re.compile(r"(.+?)\.\.(.+?)(:log)?")
TRUTH = {"on": True, "true": True, "off": False, "false": False}
WHAT = {int: "a whole number", float: "a number", bool: "on or off"}
NEAR = 0.05  # share of a range that counts as its edge
FIXED = {  # what a sweep does not search, and why
    **dict.fromkeys(("data", "data_dir", "size", "fit"), "all trials have the same data"),
    **dict.fromkeys(("validation", "labels", "seed"), "all trials are measured on the same labels"),
    **dict.fromkeys(("device", "threads"), "it does not change what is learnt"),
    "method": "name several in `methods`",
}


@dataclass(frozen=True)
class Axis:
    """A setting and its values: some of them, or a range from `low` to `high`."""

    name: str
    kind: type
    choices: tuple[Any, ...] = ()
    low: float = 0.0
    high: float = 0.0
    log: bool = False

    @property
    def text(self) -> str:
        """As it was given."""
        if self.choices:
            return f"{self.name}={','.join(map(written, self.choices))}"
        return f"{self.name}={written(self.low)}..{written(self.high)}{':log' * self.log}"

    @property
    def extremes(self) -> tuple[Any, ...]:
        """The values that are checked before anything is trained."""
        return self.choices or (self.low, self.high)

    def holds(self, value: Any) -> bool:
        return value in self.choices if self.choices else self.low <= value <= self.high

    def suggest(self, trial: Any) -> Any:
        """The value of an optuna trial."""
        if self.choices:
            return trial.suggest_categorical(self.name, self.choices)
        if self.kind is int:
            return trial.suggest_int(self.name, int(self.low), int(self.high), log=self.log)
        return trial.suggest_float(self.name, self.low, self.high, log=self.log)

    def position(self, value: float) -> float:
        """Where a value stands in the range: 0 is its low end, 1 its high end."""
        scale = math.log if self.log else float
        return (scale(value) - scale(self.low)) / (scale(self.high) - scale(self.low))

    def beyond(self, value: Any) -> Any:
        """If the value is at an end of what was searched, a value outside of that end; else None."""
        if self.kind not in (int, float) or len(self.extremes) < 2:
            return None
        low, high = min(self.extremes), max(self.extremes)
        at = {low: 0.0, high: 1.0}.get(value, 0.5) if self.choices else self.position(value)
        if NEAR < at < 1 - NEAR:
            return None
        if self.log:
            outside = low / 1.5 if at < 0.5 else high * 1.5
        else:
            outside = low - 0.1 * (high - low) if at < 0.5 else high + 0.1 * (high - low)
        return self.kind(math.floor(outside) if at < 0.5 else math.ceil(outside)) if self.kind is int else outside


def written(value: Any) -> str:
    return shown(value) if isinstance(value, bool) else str(value)


def parse_axes(texts: Sequence[str], methods: Sequence[str]) -> list[Axis]:
    """The settings to search, each of which at least one of the methods has."""
    kinds = {name: kind for name, kind in get_type_hints(Config).items() if name != "options"}
    for method in methods:
        kinds = get_type_hints(recipe(method).options) | kinds
    axes = [parse_axis(text, kinds) for text in texts]
    names = [axis.name for axis in axes]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"`set` names {twice} twice: give all its values at once.")
    return axes


def parse_axis(text: str, kinds: Mapping[str, type]) -> Axis:
    name, equals, values = text.partition("=")
    name = name.strip().replace("-", "_")
    if not equals or not name or not values.strip():
        raise UsageError(f"`set` takes {FORMS}, but is {brief(text)}.")
    if name in FIXED:
        raise UsageError(f"`set` cannot search {name}: {FIXED[name]}.")
    if name not in kinds:
        raise unknown("setting or option of these methods", name, kinds)
    kind = kinds[name]
    found = RANGE.fullmatch(values) if kind is not str else None
    if found is None:
        choices = tuple(parse_value(name, each, kind) for each in values.split(","))
        if len(set(choices)) < len(choices):
            raise UsageError(f"`set` gives a value of {name} twice: {values}.")
        return Axis(name, kind, choices)
    if kind is bool:
        raise UsageError(f"`set` cannot search a range of {name}, which is on or off: give {name}=on,off.")
    low, high = (parse_value(name, each, kind) for each in found.groups()[:2])
    if not low < high:
        raise UsageError(f"`set` gives {name} an empty range: {low} is not less than {high}.")
    if found[3] and low <= 0:
        raise UsageError(f"`set` gives {name} a logarithmic range, which must begin above 0, but begins at {low}.")
    return Axis(name, kind, (), low, high, bool(found[3]))


def parse_value(name: str, text: str, kind: type) -> Any:
    text = text.strip()
    try:
        if kind is bool:
            return TRUTH[text.lower()]
        value = kind(text)
        if not text or (kind is float and not math.isfinite(value)):
            raise ValueError
    except (KeyError, ValueError, OverflowError):
        what = WHAT.get(kind, "a value")
        raise UsageError(f"`set` needs {what} for {name}, but has {brief(text)}: it takes {FORMS}.") from None
    return value


@dataclass(frozen=True)
class Space:
    """The settings that are searched together, of one method."""

    axes: tuple[Axis, ...]

    @cached_property
    def size(self) -> float:
        """The number of points; infinite if there is a range."""
        return math.prod(len(axis.choices) or math.inf for axis in self.axes)

    def point(self, number: int) -> dict[str, Any]:
        """The number-th of a grid; the last setting changes first."""
        values = next(islice(product(*(axis.choices for axis in self.axes)), number, None))
        return {axis.name: value for axis, value in zip(self.axes, values, strict=True)}

    def corners(self) -> list[dict[str, Any]]:
        """Points in which every pair of extreme values meets, so that what cannot be searched together is found."""
        first = {axis.name: axis.extremes[0] for axis in self.axes}
        found = [first]
        for i, one in enumerate(self.axes):
            found += [first | {one.name: value} for value in one.extremes[1:]]
            for other in self.axes[:i]:
                pairs = product(one.extremes[1:], other.extremes[1:])
                found += [first | {one.name: a, other.name: b} for a, b in pairs]
        return found
