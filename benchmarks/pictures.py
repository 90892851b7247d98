"""Test error on folders of pictures with few labels: `certus train --data FOLDER --minutes M`, and its rivals.

    python benchmarks/pictures.py --cache CACHE --photos flowers=DIR --photos leaves=DIR
    python benchmarks/pictures.py --report

The first command draws the folders (benchmarks/folders.py) and trains. It can be stopped at any time, and the same
command goes on with what is missing: every finished cell (folder, arm, labels per class, seed, minutes) is a row of
OUT/runs.csv. The second one only reads that file: it prints tables for each folder and draws OUT/pictures.png.

A minute is a minute of a machine with two cores, counted in processor time, so that a busy machine changes no result.
Each cell has its own process (benchmarks/picture_arms.py) with one thread.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from functools import partial
from itertools import product
from pathlib import Path

from folders import add_arguments, sources
from pictures_report import ARMS, COLUMNS, MEASURES, TIMELESS, Cell, draw, tables
from resumable import HERE, Benchmark, check_names, names, read


def cells(
    folders: Sequence[str], arms: Sequence[str], labels: Sequence[int], minutes: Sequence[str], seeds: int
) -> list[Cell]:
    """By seed, then minutes, labels, folder and arm, so that runs that are stopped early are complete comparisons."""
    lengths = ("", *sorted(minutes, key=float))
    return [
        Cell(folder, arm, n, seed, m)
        for seed, m, n, folder, arm in product(range(seeds), lengths, sorted(labels), folders, arms)
        if (arm in TIMELESS) == (m == "")
    ]


def command(cell: Cell, args: argparse.Namespace) -> list[str]:
    """That trains this cell."""
    given = {**vars(cell), "minutes": float(cell.minutes or 0), "cache": str(args.cache)}
    given["directory"] = sources(args)[cell.folder]
    return [sys.executable, str(HERE / "picture_arms.py"), json.dumps(given)]


def report(out: Path) -> None:
    rows = read(out / "runs.csv")
    if not rows:
        sys.exit(f"{out / 'runs.csv'} has no results: train first, without --report.")
    for measure, title in MEASURES.items():
        print(f"{title} by labels per class, mean ± standard deviation over (n) seeds.\n")
        print(*(table.markdown() for table in tables(rows, measure)), sep="\n")
    draw(rows).savefig(out / "pictures.png", dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=Path("runs/pictures"), help="where folders are made")
    add_arguments(parser)
    parser.add_argument("--out", type=Path, default=Path("results/pictures"))
    parser.add_argument("--minutes", type=names, default=names("3"))
    parser.add_argument("--arms", type=names, default=list(ARMS), help=f"of: {', '.join(ARMS)}")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--report", action="store_true", help="only print the tables and draw the figure")
    args = parser.parse_args()
    if args.report:
        report(args.out)
        return
    check_names(parser, args, ARMS)
    wanted = cells(list(sources(args)), args.arms, args.labels, args.minutes, args.seeds)
    Benchmark(args.out / "runs.csv", COLUMNS, partial(command, args=args), args.workers).finish(wanted, Cell.of)


if __name__ == "__main__":
    main()
