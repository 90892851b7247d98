"""The labels that a run may use: drawn by seed, and equal for all methods at the same seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from certus.data.dataset import Dataset
from certus.errors import UsageError
from certus.randomness import generator


@dataclass(frozen=True, eq=False)
class Split:
    """Indices into the training set. The three parts are disjoint; no run trains on validation images."""

    labelled: Tensor
    unlabelled: Tensor
    validation: Tensor
    relabelled: Mapping[int, int] = field(default_factory=dict)  # labels that a person gave, in place of the data's

    def visible(self, labels: Tensor) -> Tensor:
        """The labels that a run may see: −1 for every image that is not in `labelled`."""
        visible = torch.full_like(labels, -1)
        visible[self.labelled] = labels[self.labelled]
        for image, label in self.relabelled.items():
            visible[image] = label
        return visible


def split(
    data: Dataset, labels: int, seed: int, validation: int = 0, balanced: bool = True, unlabelled: int = 0
) -> Split:
    """Draw `labels` labelled images (0: all) and `validation` other images with labels; the rest is unlabelled.

    `balanced`: every class gets the same number of labels; the remainder goes to randomly chosen classes.
    `unlabelled`: use only this many of the rest, drawn at random; 0: all.
    """
    if validation < 0:
        raise UsageError(f"`validation` must be at least 0, but is {validation}.")
    known = data.train.labels >= 0
    n, classes = int(known.sum()), len(data.classes)
    everything = labels == 0
    labels = labels or n - validation
    if labels < classes:
        raise UsageError(
            f"{labels} labels cannot cover the {classes} classes of {data.name}: "
            + ("ask for fewer `validation` images." if everything else f"set `labels` to at least {classes}.")
        )
    if labels + validation > n or (labels + validation == len(known) and not everything):
        raise UsageError(
            f"{data.name} has {n} labelled training images, too few for {labels} labels, {validation} validation "
            "images and at least one unlabelled image: ask for fewer `labels` or fewer `validation` images."
        )
    random = generator(seed, "split")
    order = torch.randperm(len(known), generator=random)
    order = torch.cat([order[known[order]], order[~known[order]]])  # images without a label come last
    if everything:
        firsts = [(data.train.labels[order] == c).nonzero()[:1, 0] for c in range(classes)]
        spare = order[:n][~torch.isin(torch.arange(n), torch.cat(firsts))]  # every class keeps one for training
        held_out = spare[:validation]
        chosen = order[:n][~torch.isin(order[:n], held_out)]
    else:
        chosen = draw_balanced(data, order[:n], labels, random) if balanced else order[:labels]
        held_out = order[:n][~torch.isin(order[:n], chosen)][:validation]
    if missing := set(range(classes)) - set(data.train.labels[chosen].tolist()):
        names = ", ".join(data.classes[c] for c in sorted(missing))
        if everything:
            raise UsageError(f"{data.name} has no labelled training image of class {names}: label some.")
        raise UsageError(
            f"{labels} labels drawn at random with seed {seed} do not cover every class (none of {names}): "
            "ask for more `labels`, use another `seed`, or turn `balanced` on."
        )
    rest = order[~torch.isin(order, torch.cat([chosen, held_out]))]
    rest = some_of(rest, unlabelled, seed, data.name)
    return Split(chosen.sort().values, rest, held_out.sort().values)


def some_of(rest: Tensor, count: int, seed: int, name: str) -> Tensor:
    """`count` of these images, drawn at random; 0: all. They are in the order of the data set."""
    if count > len(rest):
        raise UsageError(
            f"{name} has only {len(rest)} unlabelled images, but `unlabelled` is {count}: use a smaller number, or 0 "
            "for all."
        )
    if count:
        rest = rest[torch.randperm(len(rest), generator=generator(seed, "unlabelled"))[:count]]
    return rest.sort().values


def draw_balanced(data: Dataset, order: Tensor, count: int, random: torch.Generator) -> Tensor:
    """The first `count` images in this order with equally many of each class, up to a remainder."""
    classes = len(data.classes)
    share = torch.full((classes,), count // classes)
    share[torch.randperm(classes, generator=random)[: count % classes]] += 1
    chosen = []
    for c in range(classes):
        of_class = order[data.train.labels[order] == c]
        if len(of_class) < share[c]:
            raise UsageError(
                f"Class {data.classes[c]} has {len(of_class)} labelled images, too few for its share of "
                f"{int(share[c])} of {count} balanced labels: ask for fewer `labels`, or turn `balanced` off."
            )
        chosen.append(of_class[: int(share[c])])
    return torch.cat(chosen)


def corrupt(labels: Tensor, fraction: float, classes: int, seed: int) -> Tensor:
    """Replace this fraction of the visible labels by uniformly random ones, which may be right by chance."""
    visible = (labels >= 0).nonzero().squeeze(1)
    random = generator(seed, "label noise")
    chosen = visible[torch.randperm(len(visible), generator=random)[: round(fraction * len(visible))]]
    noisy = labels.clone()
    noisy[chosen] = torch.randint(classes, (len(chosen),), generator=random)
    return noisy
