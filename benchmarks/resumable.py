"""A benchmark of many cells that can be stopped at any time: each cell has its own process, and a row of a CSV file.

A cell is a frozen dataclass whose fields are the first columns. The parent process starts a child for each one that is
missing. A child gets the cell as JSON, has one thread, and prints its result as one line of JSON.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from certus.errors import CertusError
from certus.report.text_table import csv_text

HERE = Path(__file__).resolve().parent
# A cell has one thread, a reader's machine two cores. Two threads make a training step 1.64 times as quick as one
# (0.36 s and 0.22 s, docs/performance.md). So a minute of two cores is 1.64 minutes of one.
TWO_CORES = 1.64
BESIDE = 40.0  # seconds of a cell that are not training: imports, data, timing, evaluation
LONG = 400.0  # seconds of an arm without minutes, for the first guess of the time left

Row = dict[str, str]
Given = dict[str, Any]  # what a child gets: its cell and more
Result = dict[str, Any]
C = TypeVar("C")


# --- the rows


def whole_lines(file: Path) -> bytes:
    """All but a last line that was cut off."""
    text = file.read_bytes() if file.is_file() else b""
    return text[: text.rfind(b"\n") + 1]


def read(file: Path) -> list[Row]:
    """The finished cells."""
    return list(csv.DictReader(whole_lines(file).decode().splitlines()))


def append(file: Path, columns: Sequence[str], row: Sequence[Any]) -> None:
    """In one write, in place of a line that was cut off."""
    file.parent.mkdir(parents=True, exist_ok=True)
    kept, text = whole_lines(file), csv_text(columns, [row])
    with file.open("ab", buffering=0) as out:
        out.truncate(len(kept))
        out.write((text.split("\n", 1)[1] if kept else text).encode())


# --- the parent


@dataclass(frozen=True)
class Benchmark(Generic[C]):
    """Where rows are written, and how a cell is started."""

    file: Path
    columns: Sequence[str]
    command: Callable[[C], Sequence[str]]
    workers: int

    def finish(self, wanted: Sequence[C], of: Callable[[Row], C]) -> None:
        """Run the cells that have no row yet, and end the program. `of` is the cell of a row."""
        finished = {of(row) for row in read(self.file)}
        todo = [cell for cell in wanted if cell not in finished]
        print(f"{len(wanted) - len(todo)} of {len(wanted)} cells are finished.", flush=True)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        try:
            failed = self.run(todo)
        except KeyboardInterrupt:
            sys.exit("Stopped; the same command goes on.")
        sys.exit(f"{failed} cells failed; the same command tries them again." if failed else 0)

    def run(self, todo: Sequence[C]) -> int:
        """Run these cells, `workers` at a time; the number of those that failed."""
        failed, spent, start = 0, 0.0, time.monotonic()
        left = sum(cost(cell) for cell in todo)
        with ThreadPoolExecutor(self.workers) as pool, parental_pipe() as pipe:
            under_way = {pool.submit(in_child, self.command, cell, pipe): cell for cell in todo}
            try:
                for done, future in enumerate(as_completed(under_way), 1):
                    cell, result = under_way[future], future.result()
                    spent, left = spent + cost(cell), left - cost(cell)
                    print(f"{done} of {len(todo)}: {cell}: ", end="")
                    if "failed" in result:
                        failed += 1
                        print(result["failed"], end="")
                    else:
                        self.keep(cell, result)
                        kind = "test" if "test_error" in result else "validation"
                        error, seconds = result[f"{kind}_error"], result["processor_seconds"]
                        print(f"{kind} error {error:.2f} %, {seconds:.0f} s", end="")
                    print(f"; {duration((time.monotonic() - start) * left / spent)} left", flush=True)
            finally:
                pool.shutdown(wait=False, cancel_futures=True)  # and the end of the pipe ends the children
        return failed

    def keep(self, cell: C, result: Result) -> None:
        found = {**vars(cell), **result, "settings": json.dumps(result["settings"], separators=(",", ":"))}
        append(self.file, self.columns, [found[column] for column in self.columns])


def cost(cell: Any) -> float:
    """A guess of its seconds; only proportions matter."""
    return BESIDE + (100 * float(cell.minutes) if cell.minutes else LONG)


@contextmanager
def parental_pipe() -> Iterator[int]:
    """Standard input of every child: nothing comes, and it ends when this process does, also by a kill."""
    out, into = os.pipe()
    try:
        yield out
    finally:
        os.close(into)
        os.close(out)


def in_child(command: Callable[[C], Sequence[str]], cell: C, pipe: int) -> Result:
    """The child's result; or, under `failed`, why there is none."""
    words = command(cell)
    try:
        child = subprocess.run(words, stdin=pipe, capture_output=True, text=True, env=one_thread(), check=False)
    except OSError as e:
        return {"failed": f"{words[0]} cannot be started: {e.strerror or e}."}
    if child.returncode < 0:
        return {"failed": f"The process was ended by signal {-child.returncode}; with signal 9, use fewer workers."}
    if child.returncode:
        return {"failed": (child.stderr.strip().splitlines() or [f"The process ended with {child.returncode}."])[-1]}
    return json.loads(child.stdout.splitlines()[-1])


def one_thread() -> dict[str, str]:
    """The environment of a child: one thread, and the certus of this checkout, also in another interpreter."""
    threads = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}
    path = os.pathsep.join(filter(None, [str(HERE.parent / "src"), os.environ.get("PYTHONPATH")]))
    return {**os.environ, **threads, "PYTHONPATH": path}


def duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"


def length(minutes: str) -> str:
    return f"{minutes} minute{'s' * (minutes != '1')}" if minutes else ""


# --- the command line


def names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


def check_names(parser: argparse.ArgumentParser, given: argparse.Namespace, arms: Sequence[str]) -> None:
    """Refuse arms that do not exist and minutes that are no lengths."""
    if unknown := [name for name in given.arms if name not in arms]:
        parser.error(f"There is no arm {unknown[0]!r}: choose from {', '.join(arms)}.")
    if wrong := [m for m in given.minutes if not m.replace(".", "", 1).isdigit() or not float(m) > 0]:
        parser.error(f"--minutes must be numbers above 0, but one is {wrong[0]!r}.")


# --- the child


def answer(arms: Mapping[str, Callable[[Given], Result]]) -> None:
    """The child's program: run the arm of the cell that was given, and print its result."""
    import torch

    os.environ["TQDM_DISABLE"] = "1"
    threading.Thread(target=end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    given = json.loads(sys.argv[1])
    try:
        result = arms[given["arm"]](given)
    except CertusError as e:
        result = {"failed": str(e)}
    result["megabytes"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    print("\n" + json.dumps(result), flush=True)


def end_with_parent() -> None:
    """Standard input is a pipe that ends when the parent process does."""
    while os.read(0, 1):
        pass
    os._exit(1)


def budget(given: Given) -> float:
    """Processor seconds for training."""
    return 60 * TWO_CORES * given["minutes"]
