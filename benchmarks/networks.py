"""Which network is best after equal minutes on this machine? Validation error, supervised learning, 4,000 labels.

    CERTUS_DATA=… python benchmarks/networks.py --data cifar10 --minutes 2 --seeds 2

One thread per run, one run per core. The test set is never read. docs/performance.md has the results.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from certus.config import resolve
from certus.training.build import build
from certus.training.planning import complete

CANDIDATES = "cnn13:12,cnn13:16,cnn13:24,cnn13:32,wrn-28:16,wrn-28:32"


def measure(cell: tuple[str, float, str, int, int]) -> dict[str, Any]:
    data, minutes, network, width, seed = cell
    torch.set_num_threads(1)
    given = {"data": data, "method": "supervised", "network": network, "width": width, "seed": seed, "threads": 1}
    config = complete(resolve(given), minutes=minutes)
    run = build(config)
    start = time.monotonic()
    for number in range(config.steps):
        run.advance(number)
    return {
        "network": network,
        "width": width,
        "seed": seed,
        "steps": config.steps,
        "minutes": (time.monotonic() - start) / 60,
        "validation_error": fmean(run.validation_errors()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--networks", default=CANDIDATES, metavar="NAME:WIDTH,…")
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--workers", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--out", type=Path, help="a JSON file")
    args = parser.parse_args()
    names = [network.rsplit(":", 1) for network in args.networks.split(",")]
    cells = [(args.data, args.minutes, n, int(w), s) for (n, w), s in product(names, range(args.seeds))]
    with multiprocessing.get_context("spawn").Pool(args.workers) as pool:
        rows = []
        for row in pool.imap(measure, cells):
            rows.append(row)
            print(
                f"{row['network']:>8} width {row['width']:<3} seed {row['seed']}  {row['validation_error']:6.2f} %  "
                f"{row['steps']} steps in {row['minutes']:.2f} min",
                flush=True,
            )
    if args.out:
        args.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
