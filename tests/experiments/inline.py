"""Pools without worker processes, which take seconds to start.

`Inline` has one worker, a thread of this process that stops between two epochs until it is asked for more. `Serial`
trains one cell after the other.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

from certus.errors import CertusError, Interrupted
from certus.experiments.cells import Cell
from certus.experiments.pool import attempt, train_cell
from certus.training.lock import Busy
from certus.training.loop import Tick


class Serial:
    """In place of `open_pool`: a cell is trained when its event is asked for."""

    size = 1

    def __init__(self, *_: object) -> None:
        self.cells: deque[Cell] = deque()

    def __enter__(self) -> Serial:
        return self

    def __exit__(self, *failure: object) -> None:
        """Nothing to stop."""

    def put(self, cell: Cell) -> None:
        self.cells.append(cell)

    def event(self, stopped: threading.Event) -> tuple[str, str, Any]:
        assert not stopped.is_set()
        return attempt(self.cells.popleft(), train_cell, lambda _: None)


class Killed(BaseException):
    """The process is gone, without a chance to save."""


class Inline:
    """In place of `open_pool`. `kill_after`: so many events, then everything ends as by SIGKILL."""

    kill_after: int | None = None
    seen = 0

    size = 1

    def __init__(self, on: str, workers: int, out: Path, device: str, train: Any) -> None:
        assert (on, device) == ("local", "cpu")
        assert workers >= 1
        assert out.is_absolute()
        self.train = train
        self.tasks: queue.Queue[Cell] = queue.Queue()
        self.events: queue.Queue[tuple[str, str, Any]] = queue.Queue()
        self.go = threading.Semaphore(0)
        self.dead = False
        self.thread: threading.Thread | None = None

    def __enter__(self) -> Inline:
        return self

    def __exit__(self, *failure: object) -> None:
        self.dead = True
        self.go.release()
        if self.thread:
            self.thread.join()

    def put(self, cell: Cell) -> None:
        self.tasks.put(cell)

    def event(self, stopped: threading.Event) -> tuple[str, str, Any] | None:
        if stopped.is_set():
            raise Interrupted("Stopped; every run is saved.")
        if self.kill_after is not None and Inline.seen >= self.kill_after:
            raise Killed
        Inline.seen += 1
        if self.thread is None or not self.thread.is_alive():
            if self.tasks.empty():
                return None
            self.thread = threading.Thread(target=self.work, args=(self.tasks.get_nowait(),))
            self.thread.start()
        else:
            self.go.release()
        found = self.events.get(timeout=60)
        if found[0] != "tick":
            self.thread.join()
        return found

    def work(self, cell: Cell) -> None:
        def listen(tick: Tick) -> None:
            if tick.validation_error is not None:
                self.events.put(("tick", cell.name, tick))
                self.go.acquire()
                if self.dead:
                    raise Killed

        with suppress(Killed):
            try:
                self.events.put(("result", cell.name, self.train(cell, listen)))
            except Busy as e:
                self.events.put(("busy", cell.name, e))
            except CertusError as e:
                self.events.put(("failed", cell.name, e))
