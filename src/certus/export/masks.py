"""Dropout whose masks are computed from a seed, so that a graph without a random generator can draw.

onnxruntime removes Dropout nodes. So the masks are explicit: value i of draw t at dropout site s is kept if h ≥ pP with

    x = (a·i + k) mod P,   h = f(b·f(x) + k′),   f(x) = x⁵ mod P,   P = 2³¹ − 1,

where k and k′ depend on the seed and on s, and i counts the values of all draws. f is a permutation of 0 … P − 1
(5 does not divide P − 1) that mixes well. All products are below 2⁶³, so whole numbers of 64 bits give the same masks
everywhere.

The masks of a draw are the same for every picture. So an answer does not depend on the pictures beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor, nn

P = 2**31 - 1
A, B, SITE = 1_664_525_013, 1_389_796_543, 40_014


def fifth_power(x: Tensor) -> Tensor:
    """x⁵ mod P."""
    square = x * x % P
    return square * square % P * x % P


def mixed(seed: Tensor, site: int, shape: Sequence[int]) -> Tensor:
    """int64 of this shape, as if drawn from 0 … P − 1.

    a·i + k is a sum over the axes, from the key on, so that a file need not hold all a·i as constants.
    """
    key = fifth_power((seed % P * SITE + 1 + 7919 * site) % P)
    x, stride = key, prod(shape)
    for length in shape:
        stride //= length
        x = x[..., None] + torch.arange(length) * (stride * A)
    return fifth_power((fifth_power(x % P) * B + key * SITE) % P)


class Draws:
    """What the dropouts of a network share while it draws: the seed and the number of draws; or that it does not."""

    def __init__(self) -> None:
        self.seed: Tensor | None = None
        self.count = 0
        self.only: int | None = None  # one draw at a time, of this number
        self.sites = 0


class MaskedDropout(nn.Module):
    """x · m / (1 − p) on inputs (T·B, …), draw by draw; the identity while nothing is drawn."""

    def __init__(self, p: float, draws: Draws) -> None:
        super().__init__()
        self.p, self.draws, self.site = p, draws, draws.sites
        draws.sites += 1

    def forward(self, x: Tensor) -> Tensor:
        if self.draws.seed is None or self.p == 0:
            return x
        shape, count = x.shape[1:], self.draws.count
        h = mixed(self.draws.seed, self.site, (count, *shape))
        mask = ((h >= round(self.p * P)).to(x.dtype) / (1 - self.p))[:, None]
        if self.draws.only is not None:
            return x * mask[self.draws.only]
        return (x.reshape(count, -1, *shape) * mask).reshape(-1, *shape)


def with_masks(net: nn.Module, draws: Draws) -> nn.Module:
    """The same module with masks in place of its dropouts."""
    if isinstance(net, nn.Dropout):
        return MaskedDropout(net.p, draws)
    for name, child in net.named_children():
        setattr(net, name, with_masks(child, draws))
    return net
