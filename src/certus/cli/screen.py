"""The screen: names are printed as they are, with brackets, colons and any character, whatever the locale."""

from __future__ import annotations

import io
import sys
from typing import Any

from rich.console import Console


def screen(**settings: Any) -> Console:
    """A console that takes no `[bold]` or `:smile:` in a name for its own language."""
    return Console(markup=False, emoji=False, **settings)


def print_any_name() -> None:
    """Let a character that the locale has not be printed as its code, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
