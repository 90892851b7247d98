"""What each command does: the shell between the command line and the library."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

PLACES = {
    "train": "train",
    "pretrain": "train",
    "compare": "compare",
    "report": "report",
    "paper": "paper",
    "evaluate": "evaluate",
    "predict": "evaluate",
    "methods": "methods",
    "data": "methods",
}


def command(name: str) -> Callable[[Any, frozenset[str]], int]:
    """Imported when it is asked for: training needs no matplotlib."""
    return getattr(import_module(f"certus.cli.{PLACES[name]}"), f"{name}_command")
