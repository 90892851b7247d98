"""Which uncertainty finds wrong answers: that of draws, of one clean pass, or of the witness?

    python benchmarks/witness.py --data digits --labels 20 --seeds 8
    CERTUS_DATA=… python benchmarks/witness.py --data svhn --labels 1000 --minutes 1 --validation 5000

Trains a method with a warm-up over several seeds, in memory, and prints the error (%) on validation images: of all
answers, and among the most certain half and tenth of them by each uncertainty; means over the seeds ± their standard
deviation. The test images are not read.
"""

from __future__ import annotations

import argparse
from statistics import fmean, stdev

from certus.certainty.metrics import METRICS, UNDRAWN, unconfidence
from certus.certainty.scores import error, risk_coverage
from certus.config import resolve
from certus.training.build import build
from certus.training.evaluation import answers
from certus.training.loop import fit
from certus.training.planning import complete

SHARES = (1.0, 0.5, 0.1)


def certain_errors(args: argparse.Namespace, seed: int) -> dict[str, list[float]]:
    """By uncertainty, the error among each share of the most certain answers."""
    given = {"data": args.data, "labels": args.labels, "method": args.method, "seed": seed, "threads": 1}
    if args.validation:
        given["validation"] = args.validation
    run = build(complete(resolve(given), minutes=args.minutes))
    fit(run)
    found = answers(run.method, run.data.normalised, run.validation, seed, run.config.looks)
    p = found["probabilities"][0]
    found["confidence"] = unconfidence(p)
    print(f"seed {seed}: error {error(p, found['labels']):.2f} %", flush=True)
    names = [name for name in (*METRICS, *UNDRAWN) if name in found]
    return {name: risk_coverage(p, found["labels"], found[name], SHARES) for name in names}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="digits")
    parser.add_argument("--labels", type=int, default=20)
    parser.add_argument("--method", default="ft-ccl")
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--validation", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--first", type=int, default=400)
    args = parser.parse_args()
    found = [certain_errors(args, seed) for seed in range(args.first, args.first + args.seeds)]
    print(f"{args.method} on {args.data}, {args.labels} labels, n = {len(found)}")
    for name in found[0]:
        columns = zip(*(each[name] for each in found), strict=True)
        cells = [f"{fmean(c):5.1f} ± {stdev(c) if len(c) > 1 else 0:.1f}" for c in columns]
        print(f"  {name:10} " + "  ".join(f"{100 * s:3.0f} %: {cell}" for s, cell in zip(SHARES, cells, strict=True)))


if __name__ == "__main__":
    main()
