"""Does certainty matter to training? FT-CCL with the paper's certainty, ours, single-pass confidence and random ranks.

    python benchmarks/certainty.py --data digits --seeds 5
    python benchmarks/certainty.py --data cifar10 --data-dir DATA --seeds 3 --set labels=1000 width=16 steps=1500 …

All arms have the same λ, ramp, steps and labels. Test errors are read once, after the last step; nothing is chosen by
them. docs/performance.md has the result.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch

from certus.config import resolve
from certus.errors import CertusError
from certus.methods import recipe
from certus.report.statistics import paired
from certus.training.build import build
from certus.training.evaluation import errors
from certus.training.planning import complete

ARMS: dict[str, tuple[str, dict[str, Any]]] = {
    "supervised": ("supervised", {}),
    "mean-teacher": ("mean-teacher", {}),
    "ft-ccl, PV of 10 independent draws": ("ft-ccl", {"certainty": "paper"}),
    "ft-ccl, PE of a tree of 4": ("ft-ccl", {}),
    "ft-ccl, confidence": ("ft-ccl", {"metric": "confidence"}),
    "ft-ccl, random ranks": ("ft-ccl", {"metric": "random"}),
}


def finished(cell: tuple[str, int, dict[str, Any], float | None]) -> tuple[float, float]:
    """Validation and test error of the last weights."""
    arm, seed, common, epochs = cell
    torch.set_num_threads(1)
    method, options = ARMS[arm]
    known = recipe(method).defaults()
    own = {k: v for k, v in common.items() if k in known} | options
    rest = {k: v for k, v in common.items() if k not in recipe("ft-ccl").defaults()}
    run = build(complete(resolve({**rest, "method": method, "seed": seed, "threads": 1, "options": own}), epochs))
    try:
        for number in range(run.config.steps):
            run.advance(number)
    except CertusError:
        return 100.0, 100.0
    test = run.data.test
    return fmean(run.validation_errors()), fmean(
        errors(run.method.answers, run.data.normalised, test.images, test.labels)
    )


def value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="digits")
    parser.add_argument("--data-dir", default="")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=float)
    parser.add_argument("--arms", default=",".join(map(str, range(len(ARMS)))), help="numbers of the arms, from 0")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE")
    parser.add_argument("--workers", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--out", type=Path, default=Path("certainty.json"))
    args = parser.parse_args()
    common = {"data": args.data, "data_dir": args.data_dir}
    common |= {name: value(v) for name, v in (s.split("=") for s in args.set)}
    arms = [list(ARMS)[int(i)] for i in args.arms.split(",")]
    cells = [(arm, seed, common, args.epochs) for seed in range(args.seeds) for arm in arms]
    found: dict[str, dict[int, tuple[float, float]]] = {arm: {} for arm in arms}
    with multiprocessing.get_context("spawn").Pool(args.workers) as pool:
        for (arm, seed, *_), pair in zip(cells, pool.imap(finished, cells), strict=True):
            found[arm][seed] = pair
            print(f"{arm}, seed {seed}: validation {pair[0]:.2f}, test {pair[1]:.2f}", flush=True)
    base = next((a for a in arms if "PV" in a), arms[0])
    print(f"\n{'':36} validation      test            n  test, paired difference to {base}")
    for arm, pairs in found.items():
        columns = []
        for i in (0, 1):
            values = [p[i] for p in pairs.values()]
            columns.append(f"{fmean(values):6.2f} ± {stdev(values) if len(values) > 1 else 0:5.2f}")
        tests = {s: p[1] for s, p in pairs.items()}
        against = "" if arm == base else str(paired(tests, {s: p[1] for s, p in found[base].items()}))
        print(f"{arm:36} {'  '.join(columns)}  {len(pairs)}  {against}")
    args.out.write_text(json.dumps({"settings": common, "errors": found}, indent=1))


if __name__ == "__main__":
    main()
