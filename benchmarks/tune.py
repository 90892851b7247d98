"""Choose settings on validation labels: a grid of settings, each over seeds, best mean validation error first.

    python benchmarks/tune.py --data digits --method ft-ccl --grid weight=5,20 learning_rate=0.1,0.2 --seeds 4

The test set is never read. Settings are those of `certus train`, method options among them, with `_` for `-`.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
from itertools import product
from statistics import fmean, stdev
from typing import Any

import torch

from certus.config import resolve
from certus.errors import CertusError
from certus.methods import recipe
from certus.run import build, complete


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
    cells = [(given(args.data, args.method, seed, p), args.epochs) for p in points for seed in range(args.seeds)]
    rows = []
    with multiprocessing.get_context("spawn").Pool(args.workers) as pool:
        errors = pool.imap(validation_error, cells)
        for point in points:
            found = [next(errors) for _ in range(args.seeds)]
            rows.append((fmean(found), stdev(found) if len(found) > 1 else 0.0, point))
            print(f"{rows[-1][0]:6.2f} ± {rows[-1][1]:5.2f}  {point}", flush=True)
    print("\nbest first:")
    for mean, std, point in sorted(rows, key=lambda row: row[0]):
        print(f"{mean:6.2f} ± {std:5.2f}  n = {args.seeds}  {point}")


if __name__ == "__main__":
    main()
