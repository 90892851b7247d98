"""`certus WORDS`, as one of two processes that do the same at once. Each training is noted in the file `trained`, and
waits until both processes train something."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from certus.cli.main import main
from certus.experiments import pool, sweep
from certus.experiments.cells import Cell
from certus.training import loop
from certus.training.loop import Listen
from certus.writing import append

NOTES = Path("trained")
train, train_cell, train_trial = loop.train, pool.train_cell, sweep.train_trial


def notes() -> list[tuple[str, str]]:
    """(cell, process) of each training that has begun."""
    return [tuple(line.split()) for line in NOTES.read_text().splitlines()] if NOTES.exists() else []  # type: ignore[misc]


def noted(run: Any, folder: Any, *args: Any, **more: Any) -> dict[str, Any]:
    """In a worker, which holds the lock of the folder."""
    append(NOTES, f"{folder.path.name} {os.getppid()}\n")
    while len({process for _, process in notes()}) < 2:
        time.sleep(0.05)
    return train(run, folder, *args, **more)


def cell_noted(cell: Cell, listen: Listen) -> dict[str, Any]:
    loop.train = noted
    return train_cell(cell, listen)


def trial_noted(cell: Cell, listen: Listen, **more: Any) -> dict[str, Any]:
    sweep.train = noted
    return train_trial(cell, listen, **more)


if __name__ == "__main__":
    from experiments import one_of_two  # a worker imports it by this name

    pool.train_cell, sweep.train_trial = one_of_two.cell_noted, one_of_two.trial_noted
    sys.exit(main(sys.argv[1:]))
