"""Tables in the terminal."""

from __future__ import annotations

import sys

from rich.table import Table

from certus.cli.screen import screen
from certus.methods.recipe import shown
from certus.report.statistics import Comparison
from certus.report.text_table import TextTable


def print_table(table: TextTable, title: str = "") -> None:
    page = screen(width=None if sys.stdout.isatty() else 160)  # a file has no width to wrap at
    page.print(rich_table(table, title))


def rich_table(table: TextTable, title: str = "") -> Table:
    """Columns after the first are numbers."""
    made = Table(title=title or table.title, caption=table.caption)
    for i, head in enumerate(table.heads):
        made.add_column(head, justify="right" if i else "left")
    for row in table.rows:
        made.add_row(*row)
    return made


def cost_table(comparison: Comparison) -> Table:
    """Time and memory of a training step of each method, and the values of its options."""
    reference = comparison.cost_reference
    table = Table(title="a training step", caption=f"×: time and memory relative to {reference}")
    table.add_column("method")
    for column in ("ms", "×", "MB", "×"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("options")
    for row in comparison.rows:
        if row.seconds_per_step is not None and row.bytes is not None:
            time, memory = comparison.cost(row)
            options = ", ".join(f"{name.replace('_', ' ')} {shown(value)}" for name, value in row.options.items())
            milliseconds, megabytes = f"{1000 * row.seconds_per_step:.1f}", f"{row.bytes / 1e6:.1f}"
            table.add_row(row.name, milliseconds, time, megabytes, memory, options)
    return table
