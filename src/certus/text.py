"""Text that others have chosen (names of files and classes, damaged values), made safe to print, draw and tabulate."""

from __future__ import annotations

import re
from typing import Any

FORMULA = re.compile(r"'*[=+\-@\t\r]")  # a spreadsheet runs a cell that begins like this


def printable(name: object) -> str:
    """The name as text that every encoding of Unicode can hold: a byte that is not UTF-8 becomes `\\udce9`."""
    return str(name).encode("utf-8", "backslashreplace").decode("utf-8")


def brief(value: Any, most: int = 60) -> str:
    """A value as text for an error, cut if it is long; a number may have thousands of digits."""
    try:
        text = f"{value:g}" if isinstance(value, float) else repr(value)
    except ValueError:  # Python does not write whole numbers of more than 4,300 digits
        return "a number of thousands of digits"
    return printable(text if len(text) <= most else f"{text[: most - 1]}…")


def for_spreadsheet(cell: Any) -> Any:
    """A table's cell that no spreadsheet takes for a formula: a name that begins like one gets an apostrophe."""
    if not isinstance(cell, str):
        return cell
    text = printable(cell)
    return f"'{text}" if FORMULA.match(text) and not is_number(text) else text


def from_spreadsheet(cell: str) -> str:
    """The name that `for_spreadsheet` was given."""
    return cell[1:] if cell.startswith("'") and FORMULA.match(cell) else cell


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
