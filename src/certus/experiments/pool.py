"""Pools that train cells side by side: processes of this machine here, a Ray cluster in `ray_pool`."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Protocol, Self

from certus.errors import CertusError, Interrupted, UsageError, unexpected
from certus.experiments.cells import Cell, check_folder
from certus.training import loop
from certus.training.build import build
from certus.training.lock import Busy, locked
from certus.training.loop import Listen, Tick

# What happened; the name of the cell; the value:
# ("tick", name, Tick), ("result", name, what result.json holds), ("failed", name, CertusError), or ("busy", name, Busy)
# if another process trains the cell.
Event = tuple[str, str, Any]
TrainCell = Callable[[Cell, Listen], dict[str, Any]]  # a function of a module, which a worker imports
LOCAL = "local"
EVERY = 5  # steps between two ticks
AGAIN = 5.0  # seconds until a cell of another process is tried again


class Pool(Protocol):
    """Leaving the `with` block by an error asks the workers to save their runs and stop."""

    @property
    def size(self) -> int:
        """How many cells it trains at the same time."""

    def put(self, cell: Cell) -> None:
        """Train it as soon as there is room."""

    def event(self, stopped: threading.Event) -> Event | None:
        """The next event of any cell; None if there was none for a moment. Raises `Interrupted` if `stopped` is set."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *failure: object) -> None: ...


def open_pool(on: str, workers: int, out: Path, device: str, train: TrainCell | None = None) -> Pool:
    """Args:
    on: `local`, or a Ray cluster: `ray`, `auto` or its address
    workers: cells at the same time; 0: as many as there are cores, or GPUs of the cluster
    out: the folder of all cells, which every machine must see
    device: of the cells
    train: what is done with a cell
    """
    if workers < 0:
        raise UsageError(f"`workers` must be at least 1, but is {workers}.")
    if on == LOCAL:
        return LocalPool(workers or cores(), train or train_cell)
    from certus.experiments.ray_pool import RayPool

    return RayPool(on, workers, out, device, train or train_cell)


@dataclass
class Patient:
    """A pool that tries a cell again and again while another process trains it: sooner or later it is finished or
    abandoned."""

    pool: Pool
    cells: dict[str, Cell] = field(default_factory=dict)  # that have no end yet
    again: dict[str, float] = field(default_factory=dict)  # when to try those that others train

    def put(self, cell: Cell) -> None:
        self.cells[cell.name] = cell
        self.pool.put(cell)

    def event(self, stopped: threading.Event) -> Event | None:
        for name in [name for name, when in self.again.items() if when <= time.monotonic()]:
            del self.again[name]
            self.pool.put(self.cells[name])
        event = self.pool.event(stopped)
        if event is None or event[0] == "tick":
            return event
        if event[0] == "busy":
            self.again[event[1]] = time.monotonic() + AGAIN
            return None
        del self.cells[event[1]]
        return event


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0))


class LocalPool:
    """Worker processes, one run after the other in each."""

    def __init__(self, workers: int, train: TrainCell) -> None:
        context = multiprocessing.get_context("spawn")
        self.tasks: Any = context.Queue()
        self.events: Any = context.Queue()
        self.workers = [
            context.Process(target=work, args=(self.tasks, self.events, train), daemon=True) for _ in range(workers)
        ]

    @property
    def size(self) -> int:
        return len(self.workers)

    def __enter__(self) -> Self:
        # Workers inherit a blocked Ctrl-C: the parent process stops them with SIGTERM.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            for worker in self.workers:
                worker.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return self

    def __exit__(self, *failure: object) -> None:
        if failure[0] is not None:
            self.clear_tasks()  # else a worker that is just finishing its run would start another
            for worker in self.workers:
                if worker.pid and worker.is_alive():
                    os.kill(worker.pid, signal.SIGTERM)  # finishes its step and saves
        for _ in self.workers:
            self.tasks.put(None)
        for worker in self.workers:
            worker.join(timeout=60)
            if worker.is_alive():
                worker.kill()

    def clear_tasks(self) -> None:
        with suppress(queue.Empty):
            while True:
                self.tasks.get(timeout=0.1)

    def put(self, cell: Cell) -> None:
        self.tasks.put(cell)

    def event(self, stopped: threading.Event) -> Event | None:
        if stopped.is_set():
            raise Interrupted("Stopped; every run is saved.")
        with suppress(queue.Empty):
            return self.events.get(timeout=1.0)
        if not all(worker.is_alive() for worker in self.workers):
            raise CertusError(
                "A worker process died (out of memory?). What it had saved is kept: run the same command "
                "again, with fewer `workers` if it happens twice."
            )
        return None


def work(tasks: Any, events: Any, train: TrainCell) -> None:
    """A worker process. The parent process stops it with SIGTERM; without a parent it stops by itself."""
    orphaned = threading.Event()
    threading.Thread(target=watch_parent, args=(orphaned, events), daemon=True).start()
    while not orphaned.is_set() and (cell := tasks.get()) is not None:
        try:
            events.put(attempt(cell, train, events.put))
        except (Interrupted, KeyboardInterrupt):
            events.cancel_join_thread()  # nobody reads them any more
            return


def attempt(cell: Cell, train: TrainCell, tell: Callable[[Event], Any]) -> Event:
    """Train a cell, in a worker: tell some of its ticks, and return its end."""
    steps = count()

    def listen(tick: Tick) -> None:
        if next(steps) % EVERY == 0 or tick.validation_error is not None:
            tell(("tick", cell.name, tick))

    try:
        return "result", cell.name, train(cell, listen)
    except Interrupted:
        raise
    except Busy as e:
        return "busy", cell.name, e
    except CertusError as e:
        return "failed", cell.name, e
    except OSError as e:
        return "failed", cell.name, CertusError(f"{e.strerror or e}: {e.filename or cell.folder.path}")
    except Exception as e:  # the other cells go on
        return "failed", cell.name, unexpected(e)


def watch_parent(orphaned: threading.Event, events: Any) -> None:
    """Wait for the end of the parent process; then finish the step and save, or, if there is nothing to do, end."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    orphaned.set()
    events.cancel_join_thread()
    os.kill(os.getpid(), signal.SIGTERM)


def train_cell(cell: Cell, listen: Listen) -> dict[str, Any]:
    """The result of a cell, which another process may have trained since it was looked at."""
    with locked(cell.folder.path):
        check_folder(cell)
        if cell.folder.finished():
            return cell.folder.load_result()
        return loop.train(build(cell.config, cell.folder), cell.folder, listen)
