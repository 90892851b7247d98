"""The flags of a command: declared as the fields of a frozen dataclass, parsed by tyro, refused in one sentence."""

from __future__ import annotations

import io
import re
from collections.abc import Collection, Iterable, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass, field, fields, make_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import tyro
from tyro.conf import DisallowNone, Positional

from certus.errors import UsageError, unknown
from certus.text import brief

Options = TypeVar("Options")
KINDS = {int: "a whole number", float: "a number"}


@dataclass(frozen=True)
class Flag:
    """A flag of a command, or a positional argument."""

    name: str  # in Python
    kind: Any  # bool, int, float, str or Path, or a tuple of them
    help: str
    default: str = ""  # as the help page shows it
    group: str = "options"  # on the help page; empty: not shown
    metavar: str = ""  # of a positional argument; empty: this is a flag
    auto: bool = False  # a bool that may also be auto

    @property
    def usage(self) -> str:
        if self.metavar:
            return self.metavar
        if self.kind is bool:
            return ("--[no-]" if self.default else "--") + spelled(self.name)[2:] + " [auto]" * self.auto
        if self.several:
            return f"{spelled(self.name)} {get_args(self.kind)[0].__name__.upper()}..."
        return f"{spelled(self.name)} {self.kind.__name__.upper()}"

    @property
    def several(self) -> bool:
        """Whether it takes all words up to the next flag."""
        return get_origin(self.kind) is tuple


def spelled(name: str) -> str:
    """The flag of a name in Python."""
    return "--" + name.rstrip("_").replace("_", "-")  # `from` is a word of Python, so its setting is `from_`


def flag(help: str, default: Any = None, shown: str = "", group: str = "options") -> Any:
    """A field that is a flag: without a constant default, it is None if it is not given.

    `shown` says on the help page what happens then.
    """
    if not shown and default not in (None, False, ()):
        shown = f"{default:g}" if isinstance(default, float) else str(default)
    return field(default=default, metadata={"help": help, "default": shown, "group": group})


def argument(metavar: str, help: str, default: Any = None) -> Any:
    """A field that is a positional argument."""
    return field(default=default, metadata={"help": help, "metavar": metavar, "group": "arguments"})


def many(flags: Iterable[Flag]) -> Any:
    """A field that holds several flags made by code: a mapping of those that were given."""
    return field(default_factory=dict, metadata={"flags": tuple(flags)})


def flags_of(options: type) -> list[Flag]:
    """Every flag and argument of a command."""
    hints, found = get_type_hints(options), []
    for f in fields(options):
        if "flags" in f.metadata:
            found += f.metadata["flags"]
        else:
            hint = hints[f.name]
            kinds = [k for k in get_args(hint) if k is not NoneType] if isinstance(hint, UnionType) else [hint]
            found.append(Flag(f.name, kinds[0], **f.metadata))
    return found


def flag_names(options: type) -> set[str]:
    """The names in Python of a command's flags."""
    return {f.name for f in flags_of(options) if not f.metavar}


@cache  # tyro keeps what it learns of a type for ever
def parser_type(options: type) -> type:
    """What tyro parses: all flags side by side, each None if it is not given. Of two with one name, the first."""
    found: dict[str, Any] = {}
    for f in flags_of(options):
        kind = f.kind | None
        typed = Annotated[kind, tyro.conf.arg(name=spelled(f.name)[2:])] if f.name.endswith("_") else kind
        found.setdefault(f.name, Annotated[kind, Positional] if f.metavar else typed)
    return make_dataclass("Flags", [(name, kind, field(default=None)) for name, kind in found.items()])


def parse(command: str, options: type[Options], words: Sequence[str]) -> Options:
    """The options of a command from the words after its name."""
    words, automatic = without_auto(flags_of(options), words)
    try:
        with redirect_stderr(io.StringIO()):  # tyro's account of an error; ours is one sentence
            flags = parser_type(options)  # type: ignore[arg-type]
            parsed: object = tyro.cli(flags, args=words, config=(DisallowNone,), add_help=False)
    except SystemExit:
        raise refusal(command, flags_of(options), words) from None
    given = {name: value for name, value in vars(parsed).items() if value is not None} | automatic
    values: dict[str, Any] = {}
    for f in fields(options):  # type: ignore[arg-type]
        if "flags" in f.metadata:
            values[f.name] = {flag.name: given.pop(flag.name) for flag in f.metadata["flags"] if flag.name in given}
        elif f.name in given:
            values[f.name] = given.pop(f.name)
    return options(**values)


def without_auto(flags: Sequence[Flag], words: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The words without `--flip auto` or `--flip=auto`, and what these give: tyro's bools take no value."""
    rest, given = list(words), dict[str, str]()
    for f in flags:
        name = spelled(f.name)
        pairs = [(i, i + 2) for i in range(len(rest)) if rest[i : i + 2] == [name, "auto"]]
        pairs += [(i, i + 1) for i in range(len(rest)) if rest[i] == f"{name}=auto"]
        if f.auto and pairs:
            given[f.name] = "auto"
            for start, stop in sorted(pairs, reverse=True):
                del rest[start:stop]
    return rest, given


def refusal(command: str, flags: Sequence[Flag], words: Sequence[str]) -> UsageError:
    """Why these words could not be parsed."""
    known = {spelled(f.name): f for f in flags if not f.metavar}
    loose: list[str] = []  # words that are neither a flag nor its value
    rest = list(words)
    while rest:
        name, attached, value = rest.pop(0).partition("=")
        found = known.get(name.replace("_", "-"))
        if found is None:
            positive = known.get(name.replace("_", "-").replace("--no-", "--", 1))
            if positive is not None and positive.kind is bool:
                continue
            if name.startswith("-"):
                return unknown("option", name, known)
            loose.append(name)
        elif found.kind is not bool:
            if not attached:
                if not rest or rest[0].startswith("--"):
                    return UsageError(f"{name} needs a value.")
                value = rest.pop(0)
            while found.several and rest and not rest[0].startswith("--"):
                rest.pop(0)
            try:
                if found.kind in KINDS:
                    found.kind(value)
            except ValueError:
                return UsageError(f"{name} must be {KINDS[found.kind]}, but is {brief(value)}.")
    return UsageError(f"certus {command} does not understand {brief(loose[-1] if loose else ' '.join(words))}.")


def with_flags(text: str, names: Collection[str]) -> str:
    """A text for users of the command line: `learning_rate` in backticks becomes --learning-rate.

    A word in backticks that is not among the names stays as it is. `no_flip` becomes --no-flip if flip is a name.
    """

    def spell(found: re.Match[str]) -> str:
        return spelled(found[1]) if {found[1], found[1].removeprefix("no_")} & set(names) else found[0]

    return re.sub(r"`([a-z0-9_]+)`", spell, text)
