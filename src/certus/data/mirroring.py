"""Whether pictures may be mirrored: a mirrored letter, sign or digit is another thing, a mirrored cat is a cat.

A linear model of simple descriptors learns from a part of the labelled pictures, and answers the others as they are and
mirrored. If a class is not recognised in the mirror, or all are recognised much less, pictures are not mirrored; nor if
the labels are too few to tell.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist

import torch
from torch import Tensor

from certus.data.descriptors import describe, held_out_answers

MOST, LEAST = 2500, 10  # labels that are looked at (per class at least LEAST of them), and that are needed per class
DOUBT = 0.01  # probability of calling some class mirrored by chance
LOSS, CLASS_LOSS = 1 / 3, 1 / 2  # of the recognised pictures of all classes and of one, so many may be lost


@dataclass(frozen=True)
class Verdict:
    """Whether to mirror, and why."""

    flip: bool
    reason: str

    def __str__(self) -> str:
        return f"Pictures are {'' if self.flip else 'not '}mirrored at random: {self.reason}."


def judge(images: Tensor, labels: Tensor, labelled: Tensor, classes: tuple[str, ...]) -> Verdict:
    """From those of the images (N, C, H, W) whose indices are `labelled`, in random order."""
    least = LEAST * len(classes)
    n = min(len(labelled), max(MOST, least))
    if n < least:
        return Verdict(False, f"{n:,} labels are too few to tell (use `flip` if left and right do not matter)")
    plain, mirrored = (describe(images, labelled[:n], mirror) for mirror in (False, True))
    return compared(plain, mirrored, labels[labelled[:n]], classes)


def compared(plain: Tensor, mirrored: Tensor, labels: Tensor, classes: tuple[str, ...]) -> Verdict:
    """From the descriptors (n, D) of labelled pictures as they are and mirrored."""
    as_they_are, in_the_mirror = (a == labels for a in held_out_answers(plain, labels, (plain, mirrored)))
    counts = labels.bincount(minlength=len(classes))
    share = 1 / (len(classes) * counts[labels].double())  # every class counts the same, however many labels it has
    right, left = (float((share * found).sum()) for found in (as_they_are, in_the_mirror))
    chance = 1 / len(classes)
    shown = f"of each class, a quick model recognises {right:.0%} as they are and {left:.0%} in the mirror"
    change = as_they_are.double() - in_the_mirror.double()
    doubt = float((share * (change - change.mean())).square().sum().sqrt())
    chances = float(share.square().sum().sqrt()) * sqrt(max(0, right * (1 - right)))
    allowed = LOSS * (right - chance)
    if turned := lost(as_they_are, in_the_mirror, labels, len(classes)):
        return Verdict(False, f"{classes[turned[0]]} looks like another class in the mirror")
    if right - left > allowed:
        return Verdict(False, shown)
    if right - chance < 3 * chances or right - left + doubt > allowed:
        return Verdict(False, f"{shown}, which is too little to tell (use `flip` if left and right do not matter)")
    return Verdict(True, shown)


def lost(as_they_are: Tensor, in_the_mirror: Tensor, labels: Tensor, classes: int) -> list[int]:
    """Classes that are much less recognised in the mirror, and not by chance: McNemar's test for each of them."""
    surprising = NormalDist().inv_cdf(1 - DOUBT / classes)
    losses, gains = (
        torch.zeros(classes, dtype=torch.float64).index_add_(0, labels, changed.double())
        for changed in (as_they_are & ~in_the_mirror, in_the_mirror & ~as_they_are)
    )
    recognised = labels[as_they_are].bincount(minlength=classes)
    found = (losses - gains) / (losses + gains).clamp(min=1).sqrt() > surprising
    found &= losses - gains > CLASS_LOSS * recognised
    return [c for c in (losses - gains).argsort(descending=True).tolist() if found[c]]
