"""Choose settings on validation labels: a grid of settings, each over seeds, the best mean validation error first.

    python benchmarks/tune.py --data digits --method ft-ccl --grid weight=5,20 learning_rate=0.1,0.2 --seeds 4

The test set is never read. Differences to the first point are paired by seed, with a 95 % interval. The names in the
grid are the settings of `certus train` and the options of the method, with `_` for `-`.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import signal
import sys
from itertools import product
from statistics import fmean
from typing import Any

import torch

from certus.config import resolve
from certus.errors import CertusError
from certus.methods import recipe
from certus.report.statistics import mean_std, paired
from certus.report.text_table import spread_text
from certus.training.build import build
from certus.training.planning import complete


def validation_error(cell: tuple[dict[str, Any], float | None]) -> float:
    """Of the last weights; a run whose loss is no longer finite counts as 100 %."""
    torch.set_num_threads(1)
    given, epochs = cell
    run = build(complete(resolve(given), epochs))
    try:
        for number in range(run.config.steps):
            run.advance(number)
    except CertusError:
        return 100.0
    return fmean(run.validation_errors() or [])


def given(data: str, method: str, seed: int, values: dict[str, Any]) -> dict[str, Any]:
    options = recipe(method).defaults()
    own = {name: value for name, value in values.items() if name in options}
    rest = {name: value for name, value in values.items() if name not in options}
    return {"data": data, "method": method, "seed": seed, "threads": 1, **rest, "options": own}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="digits")
    parser.add_argument("--method", default="ft-ccl")
    parser.add_argument("--grid", nargs="*", default=[], metavar="NAME=V,V,…")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--epochs", type=float)
    parser.add_argument("--workers", type=int, default=multiprocessing.cpu_count())
    args = parser.parse_args()

    def value(text: str) -> Any:
        try:
            return json.loads(text)
        except ValueError:
            return text

    axes = {name: [value(v) for v in values.split(",")] for name, values in (g.split("=") for g in args.grid)}
    points = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
    seeds = range(args.first, args.first + args.seeds)
    cells = [(given(args.data, args.method, seed, p), args.epochs) for p in points for seed in seeds]
    rows: list[tuple[float, str]] = []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the pool takes its workers with it
    with multiprocessing.get_context("spawn").Pool(args.workers) as pool:
        errors = pool.imap(validation_error, cells)
        first: dict[int, float] = {}
        for point in points:
            found = {}
            for seed in seeds:
                found[seed] = next(errors)
                print(f"  seed {seed}: {found[seed]:.2f}", flush=True)
            mean, std = mean_std(list(found.values()))
            difference = f"  {paired(found, first)}" if first else ""
            first = first or found
            rows.append((mean, f"{spread_text(mean, std)}  n = {args.seeds}{difference}  {point}"))
            print(rows[-1][1], flush=True)
    if len(rows) > 1:
        print("\nbest first:", *(line for _, line in sorted(rows)), sep="\n")


if __name__ == "__main__":
    main()
