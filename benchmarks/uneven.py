"""Uneven classes: the error, as the mean over classes, with and without `balance`.

The classes of a data set get geometrically fewer labels, and eight times as many unlabelled images. The error is
measured on 200 other training images of each class; no test image is read. Small networks and short runs.

    python benchmarks/uneven.py --data fashion-mnist --most 100 --ratio 20 --seeds 4
"""

from __future__ import annotations

import argparse
from statistics import fmean, stdev

import torch

from certus.certainty.scores import class_errors
from certus.config import resolve
from certus.data import Dataset, Part, load
from certus.training.build import build_on
from certus.training.loop import fit
from certus.training.planning import complete_on

EACH, UNLABELLED = 200, 8  # images per class for the error; unlabelled images per label
ARMS = ("none", "batches", "logits")
SETTINGS = {
    "data": ".",  # has the settings of a folder of pictures
    "network": "sprint",
    "width": 32,
    "labelled_batch": 32,
    "unlabelled_batch": 96,
    "flip": False,
    "threads": 1,
    "precision": "fp32",
}


def uneven(full: Dataset, most: int, ratio: float, seed: int) -> Dataset:
    """Which class is common and which is rare is drawn by the seed."""
    random, classes = torch.Generator().manual_seed(seed), len(full.classes)
    rank = torch.randperm(classes, generator=random)
    counts = (most * ratio ** (-rank / (classes - 1))).round().clamp(min=1).long()
    order = torch.randperm(len(full.train), generator=random)
    labelled, unlabelled, rest = [], [], []
    for c, n in enumerate(counts.tolist()):
        of_class = order[full.train.labels[order] == c]
        labelled.append(of_class[:n])
        unlabelled.append(of_class[n : n + UNLABELLED * n])
        rest.append(of_class[-EACH:])
    index, held_out = torch.cat(labelled + unlabelled), torch.cat(rest)
    labels = full.train.labels[index].clone()
    labels[int(counts.sum()) :] = -1
    images = full.train.images
    validation = Part(images[held_out], full.train.labels[held_out])
    return Dataset(full.name, full.classes, Part(images[index], labels), Part(images[:0], labels[:0]), validation)


def mean_class_error(data: Dataset, method: str, steps: int, seed: int, balance: str) -> float:
    given = SETTINGS | {"method": method, "steps": steps, "seed": seed, "balance": balance}
    run = build_on(data, complete_on(data, resolve(given)))
    fit(run)
    return fmean(
        fmean(e for e in class_errors(p, run.validation.labels) if e is not None) for p in run.validation_answers()
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="fashion-mnist")
    parser.add_argument("--method", default="mean-teacher")
    parser.add_argument("--most", type=int, default=100, help="labels of the commonest class")
    parser.add_argument("--ratio", type=float, default=20.0, help="how many times those of the rarest")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    o = parser.parse_args()
    full, found = load(o.data), {arm: [] for arm in ARMS}
    for seed in range(o.first, o.first + o.seeds):
        data = uneven(full, o.most, o.ratio, seed)
        for arm, errors in found.items():
            errors.append(mean_class_error(data, o.method, o.steps, seed, arm))
            print(f"{o.data} {o.method} seed {seed} {arm}: {errors[-1]:.2f} %", flush=True)
    for arm, errors in found.items():
        spread = f" ± {stdev(errors):.1f}" if len(errors) > 1 else ""
        print(f"{arm}: {fmean(errors):.1f}{spread} % (n = {len(errors)})")


if __name__ == "__main__":
    main()
