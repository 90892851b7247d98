"""Plans for Monte-Carlo draws: each draw with its own view and dropout, or a tree of draws that share computation.

Randomness enters a network at the view and then at each dropout site (`networks.stages`). A tree has n_0 views, n_1
draws at the first site that branches, …, n_L = T draws at the last; children share the computation of their parent.

The price of sharing: let Z_l be all randomness down to level l, V_l = Σ_c E Var(E[p_c | Z_l] | Z_l−1) the variance that
enters there (Σ_c Var p_c = V_0 + … + V_L), and w_lj the share of the leaves below node j of level l. Then

    E[PV] = Σ_l (1 − Σ_j w_lj²) V_l = Σ_l (1 − 1/n_l) V_l where leaves are spread evenly,

compared with (1 − 1/T) Σ_l V_l for independent draws: a tree's PV is too small by exactly Σ_l (1/n_l − 1/T) V_l, the
part that leaves share. The means of p and of H over the leaves are unbiased in any tree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from certus.distributed.rows import Collector
from certus.errors import UsageError
from certus.networks.modes import dropout_only, evaluating
from certus.text import brief

MOST = 10_000  # draws

Stages = Sequence[nn.Module]
View = Callable[[int], Tensor]  # number of the view -> the images (B, …) under it
Seed = Callable[[str], None]  # seeds the dropout by name


@dataclass(frozen=True, repr=False)
class Independent:
    """T draws, each with its own view and its own dropout at every site."""

    draws: int

    def __post_init__(self) -> None:
        if self.draws < 2:
            raise UsageError(f"`draws` {self!r} has too few draws to differ from each other: take at least 2.")

    def counts(self, stages: Stages) -> list[int]:
        """How often each stage runs."""
        return [self.draws] * len(stages)

    def run(self, stages: Stages, make_view: View, seed_dropout: Seed, moments: Collector) -> None:
        """Add each draw's probabilities (B, C) to the moments; the seed `draw t` is for all dropout of one pass."""
        seed = {0: "draw {}"}
        walk(stages, self.counts(stages), make_view, seed_dropout, seed, moments)

    def cost(self, stages: Stages, shape: tuple[int, ...]) -> float:
        """Cost in forward passes of the whole network."""
        return cost(stages, self.counts(stages), shape)

    def __repr__(self) -> str:
        return f"independent:{self.draws}"


@dataclass(frozen=True, repr=False)
class Tree:
    """The number of nodes at each level: the views, then the draws at the last dropout sites; the last number is T."""

    levels: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.levels) < 2:
            raise UsageError(
                f"`draws` {self!r} has no level to branch at: give the views and the draws, as in tree:1x4x10."
            )
        if self.levels[0] < 1 or any(b < a for a, b in pairwise(self.levels)):
            raise UsageError(
                f"`draws` {self!r} loses branches: the numbers are totals per level, from 1, and must not decrease."
            )
        if self.levels[-1] < 2:
            raise UsageError(f"`draws` {self!r} ends with 1 draw, but one draw cannot vary: end with at least 2.")

    def counts(self, stages: Stages) -> list[int]:
        """How often each stage runs: a site that has no number draws once for each view."""
        views, *draws = self.levels
        sites = len(stages) - 1
        if len(draws) > sites:
            raise UsageError(
                f"`draws` {self!r} branches at {len(draws)} dropout sites, but the network can be cut at {sites}: "
                + ("use independent draws." if not sites else f"give at most {sites + 1} numbers.")
            )
        return [views] * (1 + sites - len(draws)) + draws

    def run(self, stages: Stages, make_view: View, seed_dropout: Seed, moments: Collector) -> None:
        """Add each leaf's probabilities (B, C) to the moments; the seed `site s node j` is for one node's dropout."""
        seed = {s: f"site {s} node {{}}" for s in range(1, len(stages))}
        walk(stages, self.counts(stages), make_view, seed_dropout, seed, moments)

    def cost(self, stages: Stages, shape: tuple[int, ...]) -> float:
        """Cost in forward passes of the whole network."""
        return cost(stages, self.counts(stages), shape)

    def __repr__(self) -> str:
        return f"tree:{'x'.join(map(str, self.levels))}"


Plan = Independent | Tree


def parse(text: str | int) -> Plan:
    """Read `independent:10`, its short form 10, or `tree:1x4x10`."""
    text = str(text).strip()
    kind, _, numbers = (f"independent:{text}" if text.isascii() and text.isdigit() else text).partition(":")
    parts = numbers.split("x")
    digits = all(part.isascii() and part.isdigit() for part in parts)
    if digits and (max(map(len, parts)) > 6 or prod(map(int, parts)) > MOST):
        raise UsageError(f"`draws` must be at most {MOST:,} in all, but is {brief(text)}.")
    if digits and kind == "independent" and len(parts) == 1:
        return Independent(int(numbers))
    if digits and kind == "tree":
        return Tree(tuple(map(int, parts)))
    raise UsageError(f"`draws` {text!r} is not a plan: write independent:10, or tree:1x4x10 (views x draws x draws).")


def suitable(stages: Stages) -> Plan:
    """The cheapest plan with good ranks (docs/performance.md): all branches at the last dropout."""
    sites = len(stages) - 1
    return Tree((*[1] * min(sites, 2), 4)) if sites else Independent(4)


@torch.no_grad()
def walk(
    stages: Stages, counts: Sequence[int], make_view: View, seed_dropout: Seed, seed: dict[int, str], moments: Collector
) -> None:
    """Run the tree depth first, so that only one activation per level is in memory. `seed` names the dropout of node j
    before stage s."""

    def descend(s: int, node: int, x: Tensor) -> None:
        if s in seed:
            seed_dropout(seed[s].format(node))
        version = x._version
        y = stages[s](x)  # (B, …)
        if s and x._version != version:
            raise UsageError(
                "A dropout of this network changes its input in place, but other draws share that input: use "
                "independent `draws`, or dropout with inplace=False."
            )
        if s + 1 == len(stages):
            return moments.add(y.float().softmax(1))
        for child in children(node, counts[s], counts[s + 1]):
            descend(s + 1, child, y)
        return None

    with dropout_only(nn.ModuleList(stages)):
        for view in range(counts[0]):
            descend(0, view, make_view(view))


def children(node: int, nodes: int, below: int) -> range:
    """The children of this node: consecutive, and as many as its siblings have, or one more."""
    return range(node * below // nodes, (node + 1) * below // nodes)


@torch.no_grad()
def cost(stages: Stages, counts: Sequence[int], shape: tuple[int, ...]) -> float:
    """Σ_s n_s f_s / Σ_s f_s with f_s the multiply-adds of stage s for an input of this shape, (D,) or (C, H, W)."""
    first = next((p for stage in stages for p in (*stage.parameters(), *stage.buffers())), torch.empty(0))
    x = torch.zeros(1, *shape, device=first.device)
    work = []
    with evaluating(nn.ModuleList(stages)):
        for stage in stages:
            with FlopCounterMode(display=False) as counter:
                x = stage(x)
            work.append(counter.get_total_flops())
    return sum(n * f for n, f in zip(counts, work, strict=True)) / sum(work)
