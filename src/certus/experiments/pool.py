"""Worker processes that train cells side by side, one run after the other in each."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import count
from typing import Any

from certus.errors import CertusError, Interrupted, unexpected
from certus.experiments.cells import Cell
from certus.training.build import build
from certus.training.loop import Tick, train

Event = tuple[str, str, Any]  # "tick", "result" or "failed"; the name of the cell; the value


class Pool:
    """Leaving the `with` block by an error asks the workers to save their runs and stop."""

    def __init__(self, workers: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.tasks: Any = context.Queue()
        self.events: Any = context.Queue()
        self.workers = [
            context.Process(target=work, args=(self.tasks, self.events, os.getpid()), daemon=True)
            for _ in range(workers)
        ]

    def __enter__(self) -> Pool:
        for worker in self.workers:
            worker.start()
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
            if stopped.is_set():
                raise Interrupted("Stopped; every run is saved.")
            try:
                event = self.events.get(timeout=1.0)
            except queue.Empty:
                if not all(worker.is_alive() for worker in self.workers):
                    raise CertusError(
                        "A worker process died (out of memory?). What it had saved is kept: run the same command "
                        "again, with fewer `workers` if it happens twice."
                    ) from None
                continue
            left -= event[0] != "tick"
            yield event


def work(tasks: Any, events: Any, parent: int) -> None:
    """A worker process. It ignores Ctrl-C; the parent process stops it with SIGTERM."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while (cell := tasks.get()) is not None:
        steps = count()

        def listen(tick: Tick, name: str = cell.name, steps: Any = steps) -> None:
            if os.getppid() != parent:  # the parent process is gone: finish the step and save
                os.kill(os.getpid(), signal.SIGTERM)
                return
            if next(steps) % 5 == 0 or tick.validation_error is not None:
                events.put(("tick", name, tick))

        try:
            events.put(("result", cell.name, train(build(cell.config), cell.folder, listen, signals=(signal.SIGTERM,))))
        except Interrupted:
            return
        except CertusError as e:
            events.put(("failed", cell.name, e))
        except OSError as e:
            events.put(("failed", cell.name, CertusError(f"{e.strerror or e}: {e.filename or cell.folder.path}")))
        except Exception as e:  # the other cells go on
            events.put(("failed", cell.name, unexpected(e)))
