"""Test error after equal minutes: certus, its version 0.1.0, USB and scikit-learn on the same images and labels.

    python benchmarks/minutes.py --data-dir DATA
    python benchmarks/minutes.py --report

The first command trains. It can be stopped at any time, and the same command goes on with what is missing: every
finished cell (task, arm, minutes, seed) is a row of OUT/runs.csv. The second one only reads that file: it prints a
table for each task and draws OUT/minutes.png.

A minute is a minute of a machine with two cores, counted in processor time, so that a busy machine changes no result.
Each cell has its own process (benchmarks/arms.py) with one thread.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

from minutes_report import ARMS, COLUMNS, TASKS, TIMELESS, USB, Cell, draw, errors, known, read, tables, whole_lines

from certus.report.text_table import csv_text

HERE = Path(__file__).resolve().parent
BESIDE = 40.0  # seconds of a cell that are not training: imports, data, timing, evaluation
LONG = 400.0  # seconds of an arm without minutes, for the first guess of the time left


def cells(tasks: Sequence[str], arms: Sequence[str], minutes: Sequence[str], seeds: int) -> list[Cell]:
    """By seed, then minutes, then task, then arm, so that runs that are stopped early are complete comparisons."""
    lengths = ("", *sorted(minutes, key=float))
    return [
        Cell(task, arm, m, seed)
        for seed, m, task, arm in product(range(seeds), lengths, tasks, arms)
        if (arm in TIMELESS) == (m == "")
    ]


def cost(cell: Cell) -> float:
    """A guess of its seconds; only proportions matter."""
    return BESIDE + (100 * float(cell.minutes) if cell.minutes else LONG)


def append(file: Path, row: Sequence[Any]) -> None:
    """In one write, in place of a line that was cut off."""
    file.parent.mkdir(parents=True, exist_ok=True)
    kept, text = whole_lines(file), csv_text(COLUMNS, [row])
    with file.open("ab", buffering=0) as out:
        out.truncate(len(kept))
        out.write((text.split("\n", 1)[1] if kept else text).encode())


# --- training


def train(todo: Sequence[Cell], args: argparse.Namespace) -> int:
    """Train the cells, `workers` at a time; the number of those that failed."""
    failed, spent, start = 0, 0.0, time.monotonic()
    left = sum(cost(cell) for cell in todo)
    with ThreadPoolExecutor(args.workers) as pool, parental_pipe() as pipe:
        under_way = {pool.submit(in_child, cell, args, pipe): cell for cell in todo}
        try:
            for done, future in enumerate(as_completed(under_way), 1):
                cell, result = under_way[future], future.result()
                spent, left = spent + cost(cell), left - cost(cell)
                print(f"{done} of {len(todo)}: {cell}: ", end="")
                if "failed" in result:
                    failed += 1
                    print(result["failed"], end="")
                else:
                    found = {**vars(cell), **result}
                    found["settings"] = json.dumps(result["settings"], separators=(",", ":"))
                    append(args.out / "runs.csv", [found[column] for column in COLUMNS])
                    print(f"test error {result['test_error']:.2f} %, {result['processor_seconds']:.0f} s", end="")
                print(f"; {duration((time.monotonic() - start) * left / spent)} left", flush=True)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)  # and the end of the pipe ends the children
    return failed


@contextmanager
def parental_pipe() -> Iterator[int]:
    """Standard input of every child: nothing comes, and it ends when this process does, also by a kill."""
    out, into = os.pipe()
    try:
        yield out
    finally:
        os.close(into)
        os.close(out)


def in_child(cell: Cell, args: argparse.Namespace, pipe: int) -> dict[str, Any]:
    """The child's result; or, under `failed`, why there is none."""
    given = {**vars(cell), "minutes": float(cell.minutes or 0), "data_dir": args.data_dir}
    python = args.usb_python if cell.arm in USB else sys.executable
    words = [python, str(HERE / "arms.py"), json.dumps(given)]
    try:
        child = subprocess.run(words, stdin=pipe, capture_output=True, text=True, env=one_thread(), check=False)
    except OSError as e:
        return {"failed": f"{python} cannot be started: {e.strerror or e}."}
    if child.returncode < 0:
        return {"failed": f"The process was ended by signal {-child.returncode}; with signal 9, use fewer workers."}
    if child.returncode:
        return {"failed": (child.stderr.strip().splitlines() or [f"The process ended with {child.returncode}."])[-1]}
    return json.loads(child.stdout.splitlines()[-1])


def one_thread() -> dict[str, str]:
    """The environment of a child: one thread, and the certus of this checkout, also in USB's environment."""
    threads = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}
    path = os.pathsep.join(filter(None, [str(HERE.parent / "src"), os.environ.get("PYTHONPATH")]))
    return {**os.environ, **threads, "PYTHONPATH": path}


def without_usb(python: str) -> str:
    """Why USB cannot be used there; empty if it can."""
    words = [python, "-c", "import usb; print(usb.available() or '')"]
    try:
        child = subprocess.run(words, cwd=HERE, capture_output=True, text=True, env=one_thread(), check=False)
    except OSError as e:
        return f"{python} cannot be started: {e.strerror or e}."
    return child.stdout.strip() if not child.returncode else child.stderr.strip().splitlines()[-1]


def duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"


def report(out: Path) -> None:
    rows = read(out / "runs.csv")
    if not rows:
        sys.exit(f"{out / 'runs.csv'} has no results: train first, without --report.")
    print("Test error (%), mean ± standard deviation over n seeds.\n")
    print(*(table.markdown() for table in tables(rows)), sep="\n", end="")
    draw(errors(rows), *known(rows)).savefig(out / "minutes.png", dpi=150)


def names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", default="", help="the folder of the data sets; empty: the usual one")
    parser.add_argument("--out", type=Path, default=Path("results/minutes"))
    parser.add_argument("--minutes", type=names, default=names("1,3,10,30"))
    parser.add_argument("--tasks", type=names, default=list(TASKS), help="data sets with their number of labels")
    parser.add_argument("--arms", type=names, default=list(ARMS), help=f"of: {', '.join(ARMS)}")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--usb-python", default=sys.executable, help="the interpreter that has USB")
    parser.add_argument("--report", action="store_true", help="only print the tables and draw the figure")
    args = parser.parse_args()
    if args.report:
        return report(args.out)
    if unknown := [name for name in args.arms if name not in ARMS]:
        parser.error(f"There is no arm {unknown[0]!r}: choose from {', '.join(ARMS)}.")
    if wrong := [m for m in args.minutes if not m.replace(".", "", 1).isdigit() or not float(m) > 0]:
        parser.error(f"--minutes must be numbers above 0, but one is {wrong[0]!r}.")
    if wrong := [task for task in args.tasks if not task.rpartition("-")[2].isdigit()]:
        parser.error(f"A task is a data set and a number of labels, such as svhn-1000, but one is {wrong[0]!r}.")
    if set(args.arms) & set(USB) and (reason := without_usb(args.usb_python)):
        print(f"The arms of USB are left out: {reason}")
        args.arms = [arm for arm in args.arms if arm not in USB]
    finished = {Cell.of(row) for row in read(args.out / "runs.csv")}
    wanted = cells(args.tasks, args.arms, args.minutes, args.seeds)
    todo = [cell for cell in wanted if cell not in finished]
    print(f"{len(wanted) - len(todo)} of {len(wanted)} cells are finished.", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        failed = train(todo, args)
    except KeyboardInterrupt:
        sys.exit("Stopped; the same command goes on.")
    sys.exit(f"{failed} cells failed; the same command tries them again." if failed else 0)


if __name__ == "__main__":
    main()
