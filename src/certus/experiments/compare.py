"""The same few labels for several methods, over seeds: runs side by side, one process per core, and their table."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import fmean
from typing import Any

from certus.config import Config
from certus.errors import CertusError, UsageError
from certus.report.statistics import difference_text, mean_std, mean_text, paired
from certus.training.build import build
from certus.training.loop import Tick, train
from certus.training.run_folder import RunFolder
from certus.training.stopping import Interrupted, stop_signal


@dataclass(frozen=True)
class Cell:
    """One run of a comparison: an arm, which is a method with certain options, at one seed."""

    name: str  # no other cell has it
    arm: str
    config: Config
    folder: RunFolder


def check(cell: Cell) -> None:
    """A folder of an earlier, stopped comparison is gone on with, but only if it is the same run."""
    if cell.folder.exists() and cell.folder.load_config() != cell.config:
        raise UsageError(
            f"{cell.folder.path} already holds a run with other settings: give another --out, or remove it."
        )


def run_all(
    cells: Sequence[Cell],
    workers: int,
    tick: Callable[[Cell, Tick], None],
    done: Callable[[Cell, dict[str, Any] | CertusError], None],
) -> dict[str, dict[str, Any]]:
    """Every cell's result by name; finished cells are read, not run again. A failed cell is left out."""
    results = {}
    waiting = []
    for cell in cells:
        check(cell)
        if cell.folder.finished():
            results[cell.name] = cell.folder.load_result()
            done(cell, results[cell.name])
        else:
            waiting.append(cell)
    by_name = {cell.name: cell for cell in cells}
    with stop_signal((signal.SIGINT, signal.SIGTERM)) as stopped, Pool(min(workers, len(waiting))) as pool:
        for kind, name, value in pool.run(waiting, stopped):
            if kind == "tick":
                tick(by_name[name], value)
                continue
            if kind == "result":
                results[name] = value
            done(by_name[name], value)
    return results


class Pool:
    """Worker processes that train one cell after the other and tell how it goes."""

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
            self.forget_waiting()  # else one that is just reading its test images would begin another run
            for worker in self.workers:
                if worker.pid and worker.is_alive():
                    os.kill(worker.pid, signal.SIGTERM)  # finishes its step and saves
        for _ in self.workers:
            self.tasks.put(None)
        for worker in self.workers:
            worker.join(timeout=60)
            if worker.is_alive():
                worker.kill()

    def forget_waiting(self) -> None:
        with suppress(queue.Empty):
            while True:
                self.tasks.get(timeout=0.1)

    def run(self, cells: Sequence[Cell], stopped: threading.Event) -> Any:
        """Events ("tick" | "result" | "failed", cell's name, value) until all are done or a signal asks to stop."""
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
                        "again, with fewer --workers if it happens twice."
                    ) from None
                continue
            left -= event[0] != "tick"
            yield event


def work(tasks: Any, events: Any, parent: int) -> None:
    """A worker: deaf to Ctrl-C, which the parent hears and passes on."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while (cell := tasks.get()) is not None:
        steps = count()

        def listen(tick: Tick, name: str = cell.name, steps: Any = steps) -> None:
            if os.getppid() != parent:  # nobody is left to listen: finish the step and save
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


def summarise(cells: Sequence[Cell], results: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """What goes into results.json: per arm every seed's test error, mean, std, n, and the paired difference."""
    errors: dict[str, dict[int, float]] = {}
    others: dict[str, list[dict[str, Any]]] = {}
    for cell in cells:
        errors.setdefault(cell.arm, {})
        if result := results.get(cell.name):
            errors[cell.arm][cell.config.seed] = result["test_error"]
            others.setdefault(cell.arm, []).append(result)
    reference = "supervised" if "supervised" in errors else next(iter(errors))
    methods = {}
    for method, by_seed in errors.items():
        mean, std = mean_std(list(by_seed.values())) if by_seed else (None, None)
        methods[method] = {
            "test_error": {str(seed): e for seed, e in sorted(by_seed.items())},
            "mean": mean,
            "std": std,
            "n": len(by_seed),
            "seconds": fmean(r["seconds"] for r in others[method]) if by_seed else None,
            "steps": others[method][0]["steps"] if by_seed else None,
            "seconds_per_step": fmean(r["seconds"] / r["steps"] for r in others[method]) if by_seed else None,
            "bytes": max(r.get("bytes", 0) for r in others[method]) if by_seed else None,
            "options": dict(next(c.config.options for c in cells if c.arm == method)),
            "difference": paired(by_seed, errors[reference]) if method != reference else None,
        }
    first = cells[0].config
    return {
        "data": first.data,
        "labels": first.labels,
        "validation": first.validation,
        "reference": reference,
        "cost_reference": "mean-teacher" if errors.get("mean-teacher") else reference,
        "methods": methods,
    }


def markdown(summary: Mapping[str, Any], command: str) -> str:
    """The table of a comparison for a document: errors, and the cost of a step relative to the cost reference."""
    unit = summary["methods"][summary["cost_reference"]]
    lines = [
        f"`{command}`",
        "",
        f"| method | test error (%) | n | difference to {summary['reference']} | time × | memory × |",
        "|---|---|---|---|---|---|",
    ]
    for method, v in summary["methods"].items():
        if v["n"]:
            time = v["seconds_per_step"] / unit["seconds_per_step"] if unit["n"] else float("nan")
            memory = v["bytes"] / unit["bytes"] if unit["n"] and unit["bytes"] else float("nan")
            difference = difference_text(v["difference"])
            lines.append(f"| {method} | {mean_text(v)} | {v['n']} | {difference} | {time:.2f} | {memory:.2f} |")
    return "\n".join(lines) + "\n"


def cell_folder(out: Path, arm: str, seed: int) -> RunFolder:
    return RunFolder(out / f"{arm}-seed{seed}")
