"""Worker processes that train cells side by side, one run after the other in each."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import count
from typing import Any

from certus.errors import CertusError, Interrupted, unexpected
from certus.experiments.cells import Cell, check_folder
from certus.training import loop
from certus.training.build import build
from certus.training.lock import locked
from certus.training.loop import Listen, Tick

Event = tuple[str, str, Any]  # "tick", "result" or "failed"; the name of the cell; the value
TrainCell = Callable[[Cell, Listen], dict[str, Any]]  # a function of a module, which a worker imports


class Pool:
    """Leaving the `with` block by an error asks the workers to save their runs and stop."""

    def __init__(self, workers: int, train: TrainCell | None = None) -> None:
        context = multiprocessing.get_context("spawn")
        self.tasks: Any = context.Queue()
        self.events: Any = context.Queue()
        self.workers = [
            context.Process(target=work, args=(self.tasks, self.events, train or train_cell), daemon=True)
            for _ in range(workers)
        ]

    def __enter__(self) -> Pool:
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

    def run(self, cells: Sequence[Cell], stopped: threading.Event) -> Iterator[Event]:
        """Events of all cells until each has a result or has failed, or until `stopped` is set."""
        for cell in cells:
            self.tasks.put(cell)
        left = len(cells)
        while left:
            event = self.event(stopped)
            left -= event[0] != "tick"
            yield event

    def event(self, stopped: threading.Event) -> Event:
        """The next one, of any cell."""
        while not stopped.is_set():
            with suppress(queue.Empty):
                return self.events.get(timeout=1.0)
            if not all(worker.is_alive() for worker in self.workers):
                raise CertusError(
                    "A worker process died (out of memory?). What it had saved is kept: run the same command "
                    "again, with fewer `workers` if it happens twice."
                )
        raise Interrupted("Stopped; every run is saved.")


def work(tasks: Any, events: Any, train: TrainCell) -> None:
    """A worker process. The parent process stops it with SIGTERM; without a parent it stops by itself."""
    orphaned = threading.Event()
    threading.Thread(target=watch_parent, args=(orphaned, events), daemon=True).start()
    while not orphaned.is_set() and (cell := tasks.get()) is not None:
        steps = count()

        def listen(tick: Tick, name: str = cell.name, steps: Any = steps) -> None:
            if next(steps) % 5 == 0 or tick.validation_error is not None:
                events.put(("tick", name, tick))

        try:
            events.put(("result", cell.name, train(cell, listen)))
        except (Interrupted, KeyboardInterrupt):
            events.cancel_join_thread()  # nobody reads them any more
            return
        except CertusError as e:
            events.put(("failed", cell.name, e))
        except OSError as e:
            events.put(("failed", cell.name, CertusError(f"{e.strerror or e}: {e.filename or cell.folder.path}")))
        except Exception as e:  # the other cells go on
            events.put(("failed", cell.name, unexpected(e)))


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
        return loop.train(build(cell.config, cell.folder), cell.folder, listen, signals=(signal.SIGTERM,))
