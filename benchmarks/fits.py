"""How should oblong pictures become squares: `fit` crop, pad or stretch?

    python benchmarks/fits.py PHOTOS [PHOTOS …]

Each folder has one folder of pictures per class. Prints the error (%) of a linear model on the features of
efficientnet-lite0, tested by folds on up to 100 pictures of each class, with its standard error; and the same on edges
and colours, which is nearer to a network that learns from scratch.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from certus.config import decide, resolve
from certus.data import load
from certus.data.descriptors import describe
from certus.data.fitting import FITS
from certus.data.folds import error_by_folds
from certus.training.embedding import comparable, remembered_features

EACH = 100


def main() -> None:
    for root in map(Path, sys.argv[1:]):
        for fit in FITS:
            given = {"data": str(root), "fit": fit, "network": "efficientnet-lite0", "method": "supervised"}
            data = load(str(root), fit=fit)
            labels = data.train.labels
            index = torch.cat([(labels == c).nonzero()[:EACH, 0] for c in range(len(data.classes))])
            features = comparable(remembered_features(data, decide(resolve(given), data), index))
            found = [error_by_folds(x, labels[index]) for x in (features, describe(data.train.images, index))]
            cells = [f"{100 * wrong:.1f} ± {100 * doubt:.1f}" for wrong, doubt in found]
            print(f"{root.name}, {fit}: features {cells[0]}, edges and colours {cells[1]}", flush=True)


if __name__ == "__main__":
    main()
