"""Help pages: flags in groups and two columns, wrapped to the width of the terminal."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from textwrap import wrap

from rich.console import Console

from certus.cli.flags import Flag, flag_names, flags_of, with_flags
from certus.cli.screen import screen

WIDEST = 120  # longer lines are hard to read
UNBROKEN = "\xa0"  # a space at which no line is broken
Rows = Sequence[tuple[str, str]]


def command_page(command: str, options: type, more: Sequence[Flag] = ()) -> None:
    """Print the help page of a command; `more`: flags that only this page shows."""
    flags, names = [*flags_of(options), *more], flag_names(options)
    groups: dict[str, list[tuple[str, str]]] = {}
    for f in flags:
        if f.group:
            default = f"(default: {f.default})".replace(" ", UNBROKEN) if f.default else ""
            groups.setdefault(f.group, []).append((f.usage, f"{with_flags(f.help, names)} {default}"))
    arguments = "".join(f" {f.metavar}" for f in flags if f.metavar)
    page(f"certus {command} [-h]{arguments} [OPTIONS]", inspect.getdoc(options) or "", groups)


def page(usage: str, about: str, groups: Mapping[str, Rows]) -> None:
    """Print how a command is used, what it does, and rows of two columns under a title for each group."""
    out = screen(highlight=False, soft_wrap=True)
    out.print(f"usage: {usage}")
    for paragraph in about.split("\n\n"):
        out.print("\n" + "\n".join(wrap(paragraph, min(out.width, WIDEST), break_on_hyphens=False)))
    room = max(len(left) for rows in groups.values() for left, _ in rows)
    for title, rows in groups.items():
        out.print(f"\n{title}", style="bold")
        print_rows(out, rows, room)


def print_rows(out: Console, rows: Rows, room: int) -> None:
    """Two columns, the left one of this width, the right one wrapped."""
    indent = "\n" + " " * (room + 4)
    for left, text in rows:
        lines = wrap(text, min(out.width, WIDEST) - room - 4, break_on_hyphens=False)
        out.print(f"  {left:{room}}  {indent.join(lines)}".replace(UNBROKEN, " "))
