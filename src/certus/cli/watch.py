"""certus watch."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.live import Live
from rich.table import Table

from certus.cli.flags import argument, flag
from certus.cli.progress import duration
from certus.cli.screen import screen
from certus.errors import UsageError
from certus.experiments.sweep_leader import PRUNED
from certus.text import printable
from certus.training.status import Status, read_status, runs_under

WIDE = 160  # columns of a table that goes to a file


@dataclass(frozen=True)
class Options:
    """Follow runs in a table while they are trained, here or on other machines.

    The table is made from the run folders alone, so they may be on a shared disk. Nothing is changed or locked. Ctrl-C
    ends it; the runs go on.
    """

    runs: tuple[Path, ...] = argument("RUN...", "folders of runs, or of comparisons and sweeps", ())
    once: bool = flag("print the table once; so does a pipe", False)
    seconds: float = flag("between two looks at the folders", 2.0)


def run(options: Options) -> int:
    if not options.runs:
        raise UsageError("certus watch needs the folder of a run, a comparison or a sweep.")
    if not 0.1 <= options.seconds <= 3600:
        raise UsageError(f"--seconds must be between 0.1 and 3600, but is {options.seconds:g}.")
    if options.once or not sys.stdout.isatty():
        screen(width=None if sys.stdout.isatty() else WIDE).print(table(look(options.runs)))
        return 0
    console = screen()
    try:
        with Live(table(look(options.runs)), console=console, auto_refresh=False) as live:
            while True:
                time.sleep(options.seconds)
                live.update(table(look(options.runs)), refresh=True)
    except KeyboardInterrupt:
        return 0


def look(paths: Sequence[Path]) -> list[tuple[str, Status]]:
    """The name and the status of every run under these folders."""
    rows = []
    for folder in runs_under(paths):
        status = read_status(folder, time.time())
        if status.state == "stopped" and (folder.path / PRUNED).exists():
            status = status.called("pruned")
        rows.append((str(folder.path), status))
    return rows


def table(rows: Sequence[tuple[str, Status]]) -> Table:
    states = [status.state for _, status in rows]
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    made = Table(caption=counts)
    for head in ("run", "method", "state", "step", "validation", "left", "losses"):
        made.add_column(head, justify="right" if head in ("step", "validation", "left") else "left")
    for name, status in rows:
        error = status.validation_error
        made.add_row(
            printable(name),
            status.method,
            status.state + (f" on {printable(status.host)}" if status.host else ""),
            f"{status.step}/{status.steps}" if status.steps else "",
            f"{error:.2f} %" if error is not None else "",
            duration(status.left) if status.left is not None else "",
            status.reason or "  ".join(f"{term} {value:.3f}" for term, value in status.losses.items()),
        )
    return made
