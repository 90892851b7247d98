"""Which labels a run may see: drawn by seed, the same for every method at that seed."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from certus.data.dataset import Dataset, Part
from certus.errors import UsageError
from certus.randomness import generator


@dataclass(frozen=True, eq=False)
class Split:
    """Places in the training set. The three parts are disjoint; validation images are never trained on."""

    labelled: Tensor
    unlabelled: Tensor
    validation: Tensor

    def visible(self, labels: Tensor) -> Tensor:
        """The labels that a run may see: −1 for every image that is not among the labelled ones."""
        seen = torch.full_like(labels, -1)
        seen[self.labelled] = labels[self.labelled]
        return seen


def split(data: Dataset, labels: int, seed: int, validation: int = 0, balanced: bool = True) -> Split:
    """Draw `labels` labelled and `validation` extra labelled images; the rest is unlabelled.

    Balanced: every class gets the same number, and what is left over goes to classes drawn at random.
    """
    n, classes = len(data.train), len(data.classes)
    if labels < classes:
        raise UsageError(
            f"{labels} labels cannot cover the {classes} classes of {data.name}: ask for at least {classes}."
        )
    if labels + validation >= n:
        raise UsageError(
            f"{data.name} has {n} training images, too few for {labels} labels and {validation} validation images "
            "with at least one image left unlabelled."
        )
    random = generator(seed, "split")
    order = torch.randperm(n, generator=random)
    chosen = spread(data.train, order, labels, random) if balanced else order[:labels]
    missing = set(range(classes)) - set(data.train.labels[chosen].tolist())
    if missing:
        names = ", ".join(data.classes[c] for c in sorted(missing))
        raise UsageError(
            f"{labels} labels drawn at random with seed {seed} do not cover every class (none of {names}): "
            "ask for more labels, another seed, or balanced labels."
        )
    taken = torch.zeros(n, dtype=torch.bool)
    taken[chosen] = True
    rest = order[~taken[order]]
    return Split(chosen.sort().values, rest[validation:].sort().values, rest[:validation].sort().values)


def spread(part: Part, order: Tensor, labels: int, random: torch.Generator) -> Tensor:
    """`labels` images, as equally over the classes as they go."""
    classes = int(part.labels.max()) + 1
    share = torch.full((classes,), labels // classes)
    share[torch.randperm(classes, generator=random)[: labels % classes]] += 1
    chosen = []
    for c in range(classes):
        of_class = order[part.labels[order] == c]
        if len(of_class) < share[c]:
            raise UsageError(
                f"Class {c} has {len(of_class)} images, too few for its share of {int(share[c])} of {labels} "
                "balanced labels: ask for fewer labels or for --no-balanced."
            )
        chosen.append(of_class[: int(share[c])])
    return torch.cat(chosen)
