"""First guesses: labels travel to similar pictures, by the features of a network that was trained on others.

A network that sees a few labels alone starts badly. In its warm-up it can also learn the guesses that are most certain.
"""

from __future__ import annotations

import torch
from torch import Tensor

from certus.config import Config
from certus.data import Dataset
from certus.data.split import Split
from certus.randomness import generator
from certus.teachers.diffusion import by_share, diffuse, graph, label_matrix, pseudo_labels
from certus.training.embedding import comparable, remembered_features

MOST, KEPT = 3000, 0.5  # unlabelled pictures that are looked at, and the share of the guesses that is kept
NEIGHBOURS, ALPHA = 10, 0.95  # of the graph, and of the diffusion over it
ITERATIONS = 200


def guessed_labels(data: Dataset, config: Config, parts: Split, labels: Tensor) -> Tensor:
    """(N,) for each training picture: its label, a guess that is certain enough, or −1."""
    order = torch.randperm(len(parts.unlabelled), generator=generator(config.seed, "guesses"))[:MOST]
    rows = torch.cat([parts.labelled, parts.unlabelled[order]])
    features = comparable(remembered_features(data, config, rows))
    guess, certainty = propagated(features, labels[rows], len(data.classes))
    certainty[: len(parts.labelled)] = torch.inf  # a label needs no guess
    kept = certainty.argsort(descending=True, stable=True)[: len(parts.labelled) + int(KEPT * len(order))]
    found = labels.clone()
    found[rows[kept]] = guess[kept]
    return found


def propagated(features: Tensor, labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """The class (n,) that reaches each picture over its neighbours, and how certain that is; −1 has no label."""
    z = diffuse(graph(features, NEIGHBOURS), label_matrix(labels, classes), ALPHA, iterations=ITERATIONS)
    guess, certainty, _ = pseudo_labels(torch.from_numpy(by_share(z, labels)), labels)
    return guess, certainty
