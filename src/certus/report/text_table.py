"""Tables as text: the terminal, Markdown and HTML show the same cells; CSV has the numbers in full."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from certus.text import for_spreadsheet


@dataclass(frozen=True)
class TextTable:
    """Cells are plain text. The first column names the row; the others are numbers."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str = ""
    caption: str = ""

    def markdown(self) -> str:
        lines = [self.heads, ("---",) * len(self.heads), *self.rows]
        return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def signed(text: str) -> str:
    """With a minus sign, which is as wide as a plus, instead of a hyphen."""
    return text.replace("-", "−")


def number_text(value: float | None, form: str = ".2f") -> str:
    return "–" if value is None else signed(f"{value:{form}}")


def spread_text(mean: float | None, std: float | None, digits: int = 2) -> str:
    """`12.34 ± 0.56`; without ± for one value."""
    if mean is None:
        return "–"
    return signed(f"{mean:.{digits}f}") + ("" if std is None else f" ± {std:.{digits}f}")


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([for_spreadsheet(cell) for cell in row] for row in rows)
    return text.getvalue()
