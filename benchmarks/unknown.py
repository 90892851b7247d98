"""Pictures of an unknown kind: does a run doubt its answers to pictures of another data set?

    CERTUS_DATA=… nice -n 19 python benchmarks/unknown.py --out unknown --minutes 1 --seeds 3

Trains a run on each data set (1,000 labels, one thread), asks it about 2,000 test pictures of its own and of the
others, and prints for each uncertainty the AUROC of "this picture is of another data set": 0.5 is chance. It also
calibrates each run (at most 10 % wrong) and prints the share of both kinds that it would answer. Pictures are brought
to the size and the colours of the run. Nothing is chosen by these numbers. It can be stopped: the same command goes on.
"""

from __future__ import annotations

import argparse
import csv
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from certus.certainty.calibration import Calibration, fit
from certus.config import resolve
from certus.data import load as load_data
from certus.data.decode import GREY
from certus.model import Model
from certus.training.build import build
from certus.training.loop import fit as fit_run
from certus.training.planning import complete

NAMES = ("confidence", "pe", "pv", "mi", "witness")
COLUMNS = ("data", "asked", "seed", "minutes", *NAMES, "answered_known", "answered_unknown")
PICTURES = 2000
PROMISE = 10.0  # percent wrong
KNOWN = ("cifar10", "svhn", "fashion-mnist")
ASKED = {
    "cifar10": ("svhn", "fashion-mnist", "digits"),
    "svhn": ("cifar10", "fashion-mnist", "digits"),
    "fashion-mnist": ("cifar10", "svhn", "digits"),
}


def auroc(known: Tensor, unknown: Tensor) -> float:
    """P(a known picture is less uncertain than an unknown one); ties count half."""
    both = torch.cat([known, unknown]).double()
    _, place, counts = both.unique(return_inverse=True, return_counts=True)
    last = counts.cumsum(0)
    ranks = ((2 * last - counts + 1).double() / 2)[place]  # mean rank of equal values
    m, n = len(known), len(unknown)
    return float((ranks[m:].sum() - n * (n + 1) / 2) / (m * n))


def pictures(name: str, shape: tuple[int, ...]) -> Tensor:
    """Test pictures of a data set, drawn by a fixed seed, as bytes of this shape."""
    images = load_data(name).test.images
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))[:PICTURES]
    x = images[order].float()
    if name == "digits":
        x = x * (255 / 16)
    if x.shape[1] == 3 and shape[0] == 1:
        shares = torch.tensor(GREY.astype(np.float32) / 1000).view(1, 3, 1, 1)
        x = (x * shares).sum(1, keepdim=True)
    if tuple(x.shape[2:]) != shape[1:]:
        x = F.interpolate(x, size=shape[1:], mode="bicubic", antialias=True)
    return x.expand(-1, shape[0], -1, -1).round().clamp(0, 255).to(torch.uint8)


def trained(data: str, seed: int, minutes: float) -> Model:
    """A calibrated model, in memory: its own test set is not read as a whole, which would take longer than training."""
    given = {"data": data, "seed": seed, "labels": 1000, "validation": 2000, "threads": 1, "method": "mean-teacher"}
    run = build(complete(resolve(given), minutes=minutes))
    fit_run(run)
    model = Model(
        nets=run.method.answers,
        classes=run.data.classes,
        shape=run.data.shape,
        mean=run.data.scale[0],
        std=run.data.scale[1],
        looks=run.config.looks,
        witnesses=run.method.witnesses,
    )
    held_out = run.validation
    p = model.predict(held_out.images, seed=seed)
    found = fit(
        torch.from_numpy(p.probabilities),
        torch.from_numpy(p.uncertainty[p.metric]),
        held_out.labels,
        metric=p.metric,
        draws=10,
        error=PROMISE / 100,
        confidence=0.95,
    )
    return replace(model, calibration=found if isinstance(found, Calibration) else None)


def cells(model: Model, data: str, seed: int, minutes: float) -> list[list[object]]:
    """A row for each data set that the run is asked about."""
    known = model.predict(pictures(data, model.shape), seed=seed)
    rows = []
    for asked in ASKED[data]:
        other = model.predict(pictures(asked, model.shape), seed=seed)
        found = [
            round(auroc(*(torch.from_numpy(p.uncertainty[name]) for p in (known, other))), 4)
            if name in known.uncertainty
            else ""
            for name in NAMES
        ]
        shares = ["" if p.answered is None else round(float(p.answered.mean()), 4) for p in (known, other)]
        rows.append([data, asked, seed, minutes, *found, *shares])
    return rows


def table(rows: list[dict[str, str]]) -> str:
    """Means ± standard deviation over the seeds, as Markdown."""
    shown = [*NAMES, "answered_known", "answered_unknown"]
    lines = ["| run on | asked about | " + " | ".join(shown) + " | n |", "|---" * (len(shown) + 3) + "|"]
    for data, asked in [(d, a) for d in KNOWN for a in ASKED[d]]:
        own = [row for row in rows if (row["data"], row["asked"]) == (data, asked)]
        each = []
        for name in shown:
            values = [float(row[name]) for row in own if row[name]]
            spread = f" ± {stdev(values):.2f}" if len(values) > 1 else ""
            each.append(f"{fmean(values):.2f}{spread}" if values else "—")
        lines.append(f"| {data} | {asked} | " + " | ".join(each) + f" | {len(own)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/unknown"))
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    args.out.mkdir(parents=True, exist_ok=True)
    file = args.out / "unknown.csv"
    done = list(csv.DictReader(file.read_text().splitlines())) if file.exists() else []
    for seed in range(args.seeds):
        for data in KNOWN:
            if sum((row["data"], row["seed"]) == (data, str(seed)) for row in done) == len(ASKED[data]):
                continue
            rows = cells(trained(data, seed, args.minutes), data, seed, args.minutes)
            new = [dict(zip(COLUMNS, map(str, row), strict=True)) for row in rows]
            done += new
            text = "\n".join(",".join(row[c] for c in COLUMNS) for row in done)
            part = file.with_suffix(".part")
            part.write_text(",".join(COLUMNS) + "\n" + text + "\n")
            part.replace(file)
            print(f"{data} seed {seed}: {new}", flush=True)
    print(table(done))


if __name__ == "__main__":
    main()
