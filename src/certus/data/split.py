"""Which labels a run may see: drawn by seed, the same for every method at that seed."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from certus.data.dataset import Dataset
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


def split(
    data: Dataset, labels: int, seed: int, validation: int = 0, balanced: bool = True, unlabelled: int = 0
) -> Split:
    """Draw `labels` labelled images (0: all there are) and `validation` others with labels; the rest is unlabelled.

    Balanced: every class gets the same number, and what is left over goes to classes drawn at random. `unlabelled`:
    only so many of the rest, drawn at random.
    """
    if validation < 0:
        raise UsageError(f"The number of validation images must be at least 0, but is {validation}.")
    known = data.train.labels >= 0
    n, classes = int(known.sum()), len(data.classes)
    everything = labels == 0
    labels = labels or n - validation
    if labels < classes:
        raise UsageError(
            f"{labels} labels cannot cover the {classes} classes of {data.name}: ask for at least {classes}"
            f"{' with fewer --validation' if everything else ''}."
        )
    if labels + validation > n or (labels + validation == len(known) and not everything):
        raise UsageError(
            f"{data.name} has {n} labelled training images, too few for {labels} labels and {validation} validation "
            "images with at least one image left unlabelled."
        )
    random = generator(seed, "split")
    order = torch.randperm(len(known), generator=random)
    order = torch.cat([order[known[order]], order[~known[order]]])  # those that nobody has labelled come last
    if everything:
        firsts = [(data.train.labels[order] == c).nonzero()[:1, 0] for c in range(classes)]
        spare = order[:n][~torch.isin(torch.arange(n), torch.cat(firsts))]  # every class keeps one to train on
        held_out = spare[:validation]
        chosen = order[:n][~torch.isin(order[:n], held_out)]
    else:
        chosen = spread(data, order[:n], labels, random) if balanced else order[:labels]
        held_out = order[:n][~torch.isin(order[:n], chosen)][:validation]
    if missing := set(range(classes)) - set(data.train.labels[chosen].tolist()):
        names = ", ".join(data.classes[c] for c in sorted(missing))
        if everything:
            raise UsageError(f"{data.name} has no labelled training image of {names}: label some.")
        raise UsageError(
            f"{labels} labels drawn at random with seed {seed} do not cover every class (none of {names}): "
            "ask for more labels, another seed, or balanced labels."
        )
    rest = order[~torch.isin(order, torch.cat([chosen, held_out]))]
    if unlabelled > len(rest):
        raise UsageError(
            f"{data.name} has {len(rest)} images left to use without labels, fewer than the {unlabelled} asked for: "
            "ask for fewer --unlabelled, or for 0, which takes all."
        )
    if unlabelled:
        rest = rest[torch.randperm(len(rest), generator=generator(seed, "unlabelled"))[:unlabelled]]
    return Split(chosen.sort().values, rest.sort().values, held_out.sort().values)


def spread(data: Dataset, order: Tensor, count: int, random: torch.Generator) -> Tensor:
    """`count` images in this order, as equally over the classes as they go."""
    classes = len(data.classes)
    share = torch.full((classes,), count // classes)
    share[torch.randperm(classes, generator=random)[: count % classes]] += 1
    chosen = []
    for c in range(classes):
        of_class = order[data.train.labels[order] == c]
        if len(of_class) < share[c]:
            raise UsageError(
                f"Class {data.classes[c]} has {len(of_class)} images, too few for its share of {int(share[c])} of "
                f"{count} balanced labels: ask for fewer labels or for --no-balanced."
            )
        chosen.append(of_class[: int(share[c])])
    return torch.cat(chosen)


def corrupt(labels: Tensor, fraction: float, classes: int, seed: int) -> Tensor:
    """Replace this fraction of the visible labels by uniformly random ones (which may be the right one, by chance)."""
    seen = (labels >= 0).nonzero().squeeze(1)
    random = generator(seed, "label noise")
    hit = seen[torch.randperm(len(seen), generator=random)[: round(fraction * len(seen))]]
    noisy = labels.clone()
    noisy[hit] = torch.randint(classes, (len(hit),), generator=random)
    return noisy
