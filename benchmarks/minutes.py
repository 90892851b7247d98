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
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from itertools import product
from pathlib import Path

from minutes_report import ARMS, COLUMNS, TASKS, TIMELESS, USB, Cell, draw, errors, known, tables
from resumable import HERE, Benchmark, check_names, names, one_thread, read


def cells(tasks: Sequence[str], arms: Sequence[str], minutes: Sequence[str], seeds: int) -> list[Cell]:
    """By seed, then minutes, then task, then arm, so that runs that are stopped early are complete comparisons."""
    lengths = ("", *sorted(minutes, key=float))
    return [
        Cell(task, arm, m, seed)
        for seed, m, task, arm in product(range(seeds), lengths, tasks, arms)
        if (arm in TIMELESS) == (m == "")
    ]


def command(cell: Cell, args: argparse.Namespace) -> list[str]:
    """That trains this cell."""
    given = {**vars(cell), "minutes": float(cell.minutes or 0), "data_dir": args.data_dir}
    python = args.usb_python if cell.arm in USB else sys.executable
    return [python, str(HERE / "arms.py"), json.dumps(given)]


def without_usb(python: str) -> str:
    """Why USB cannot be used there; empty if it can."""
    words = [python, "-c", "import usb; print(usb.available() or '')"]
    try:
        child = subprocess.run(words, cwd=HERE, capture_output=True, text=True, env=one_thread(), check=False)
    except OSError as e:
        return f"{python} cannot be started: {e.strerror or e}."
    return child.stdout.strip() if not child.returncode else child.stderr.strip().splitlines()[-1]


def report(out: Path) -> None:
    rows = read(out / "runs.csv")
    if not rows:
        sys.exit(f"{out / 'runs.csv'} has no results: train first, without --report.")
    print("Test error (%), mean ± standard deviation over n seeds.\n")
    print(*(table.markdown() for table in tables(rows)), sep="\n", end="")
    draw(errors(rows), *known(rows)).savefig(out / "minutes.png", dpi=150)


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
        report(args.out)
        return
    check_names(parser, args, ARMS)
    if wrong := [task for task in args.tasks if not task.rpartition("-")[2].isdigit()]:
        parser.error(f"A task is a data set and a number of labels, such as svhn-1000, but one is {wrong[0]!r}.")
    if set(args.arms) & set(USB) and (reason := without_usb(args.usb_python)):
        print(f"The arms of USB are left out: {reason}")
        args.arms = [arm for arm in args.arms if arm not in USB]
    wanted = cells(args.tasks, args.arms, args.minutes, args.seeds)
    Benchmark(args.out / "runs.csv", COLUMNS, partial(command, args=args), args.workers).finish(wanted, Cell.of)


if __name__ == "__main__":
    main()
