"""Mixed batches of labelled and unlabelled images, each a pure function of (seed, step)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from certus.randomness import generator, seed_of

# What a method's batches contain: labelled and unlabelled images, only labelled ones, or all images without labels.
Sees = Literal["both", "labelled", "everything"]


@dataclass
class Stream:
    """An endless stream of the indices 0 … n−1: one random permutation after the other.

    `take(step, size)` gives the step-th group of `size` indices; it does not depend on earlier calls.
    """

    n: int
    seed: int
    _order: tuple[int, Tensor] | None = None

    def take(self, step: int, size: int) -> Tensor:
        at, end = step * size, (step + 1) * size
        parts = []
        while at < end:
            lap, start = divmod(at, self.n)
            stop = min(self.n, start + end - at)
            parts.append(self._permutation(lap)[start:stop])
            at += stop - start
        return torch.cat(parts)

    def _permutation(self, lap: int) -> Tensor:
        if self._order is None or self._order[0] != lap:
            self._order = (lap, torch.randperm(self.n, generator=generator(self.seed, lap)))
        return self._order[1]


class BalancedStream:
    """An endless stream of the indices 0 … n−1 in which every class comes up equally often.

    A lap is a random permutation of the classes, and each class has its own stream of its indices.
    """

    def __init__(self, labels: Tensor, seed: int) -> None:
        self.groups = [(labels == c).nonzero()[:, 0] for c in labels.unique().tolist()]
        self.classes = Stream(len(self.groups), seed_of(seed, "classes"))
        self.streams = [Stream(len(group), seed_of(seed, "class", c)) for c, group in enumerate(self.groups)]

    def take(self, step: int, size: int) -> Tensor:
        laps = (torch.arange(step * size, (step + 1) * size) // len(self.groups)).tolist()
        classes = self.classes.take(step, size).tolist()
        return torch.stack(
            [self.groups[c][self.streams[c].take(lap, 1)[0]] for c, lap in zip(classes, laps, strict=True)]
        )


class Batches:
    """The indices of each step's images; an epoch is one pass over the unlabelled images.

    With the `labels` of the labelled images, these are drawn so that every class comes up equally often. `guessed` are
    unlabelled images whose labels the warm-up guesses.
    """

    def __init__(
        self,
        labelled: Tensor,
        unlabelled: Tensor,
        sizes: tuple[int, int],
        seed: int,
        labels: Tensor | None = None,
        guessed: Tensor | None = None,
    ) -> None:
        def of_labelled(purpose: str) -> Stream | BalancedStream:
            own = seed_of(seed, purpose)
            return Stream(len(labelled), own) if labels is None else BalancedStream(labels, own)

        self.labelled, self.unlabelled, self.sizes = labelled, unlabelled, sizes
        self._labelled = of_labelled("labelled")
        self._unlabelled = Stream(len(unlabelled), seed_of(seed, "unlabelled"))
        self.everything = torch.cat([labelled, unlabelled])
        self._everything = Stream(len(self.everything), seed_of(seed, "everything"))
        self._warm = of_labelled("warm-up")
        self.guessed = labelled[:0] if guessed is None else guessed
        self._guessed = Stream(len(self.guessed), seed_of(seed, "guessed"))

    def warm(self, step: int) -> Tensor:
        """Indices of a step of the warm-up: as many images as in any other step, all of them labelled.

        If there are guesses, three quarters of the images have a guess instead of a label.
        """
        size = sum(self.sizes)
        own = max(1, size // 4) if len(self.guessed) else size
        labelled = self.labelled[self._warm.take(step, own)]
        return torch.cat([labelled, self.guessed[self._guessed.take(step, size - own)]]) if own < size else labelled

    def size(self, sees: Sees) -> int:
        """Images per step."""
        return images_in_a_step(self.sizes, sees)

    @property
    def per_epoch(self) -> int:
        """Steps in one epoch; without unlabelled images, an epoch is one pass over the labelled ones."""
        return steps_per_pass(len(self.labelled), len(self.unlabelled), self.sizes)

    def __call__(self, step: int, sees: Sees = "both") -> Tensor:
        """Indices into the training set, those of labelled images first."""
        if sees == "everything":
            return self.everything[self._everything.take(step, self.sizes[1])]
        labelled = self.labelled[self._labelled.take(step, self.sizes[0])]
        if sees == "labelled":
            return labelled
        return torch.cat([labelled, self.unlabelled[self._unlabelled.take(step, self.sizes[1])]])


def steps_per_pass(labelled: int, unlabelled: int, sizes: tuple[int, int]) -> int:
    """Steps in one pass over the unlabelled images; without any, over the labelled ones."""
    n, size = (unlabelled, sizes[1]) if unlabelled else (labelled, sizes[0])
    return max(1, round(n / size))


def images_in_a_step(sizes: tuple[int, int], sees: Sees) -> int:
    """With batches of so many labelled and unlabelled images."""
    return {"both": sum(sizes), "labelled": sizes[0], "everything": sizes[1]}[sees]
