"""A run as one graph: pictures and a seed in, answers and how certain they are out.

It computes what `Model.answer` computes, from the fused copies of the networks. The part of a network before its first
dropout is computed once and shared by all draws, as in `training.evaluation.uncertainties`. Only the masks are others.
"""

from __future__ import annotations

from copy import deepcopy
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from certus.certainty.calibration import Calibration
from certus.errors import UsageError
from certus.export.fitting import Fit
from certus.export.masks import Draws, with_masks
from certus.model import Model
from certus.networks.fused import ChannelsLast
from certus.networks.inference import quick_stages
from certus.networks.modes import has_dropout
from certus.training.embedding import rooted

DRAWN = ("pe", "pv", "mi", "ev")
TINY = 1.1754944e-38  # the smallest float


class Answers(NamedTuple):
    """The outputs of the graph, by name and in order; `answered` is there if the run is calibrated."""

    label: Tensor  # (N,) int64
    probabilities: Tensor  # (N, C), with the calibration's temperature
    confidence: Tensor  # (N,) the largest probability
    uncertainty: Tensor  # (N, K), without temperature; `columns` names the K
    answered: Tensor | None  # (N,) bool


class Network(nn.Module):
    """A network in two parts: up to its first dropout, and from there on."""

    def __init__(self, net: nn.Module, inputs: Tensor, draws: Draws) -> None:
        super().__init__()
        first, *others = (frozen(stage, draws) for stage in quick_stages(net, inputs))
        self.trunk = first if others else nn.Identity()
        self.rest = nn.Sequential(*(others or [first]))

    def forward(self, x: Tensor) -> Tensor:
        return self.rest(self.trunk(x))


def frozen(stage: nn.Module, draws: Draws) -> nn.Module:
    """A copy that nothing else writes to, with masks for dropout. Memory formats are the machine's affair."""
    if other := next((m for m in stage.modules() if isinstance(m, _DropoutNd) and not isinstance(m, nn.Dropout)), None):
        raise UsageError(f"A network with {type(other).__name__} cannot be exported: draws need plain dropout.")
    copy = deepcopy(stage).eval().requires_grad_(False)
    for parent in list(copy.modules()):
        for name, child in parent.named_children():
            if isinstance(child, ChannelsLast):
                setattr(parent, name, nn.Identity())
    return with_masks(copy, draws)


class Graph(nn.Module):
    """The answering networks of a model, their witnesses, and what stands before and after them."""

    mean: Tensor
    std: Tensor

    def __init__(self, model: Model, fit: str, draws: int) -> None:
        super().__init__()
        self.draws, self.pictures = Draws(), len(model.shape) == 3
        self.looks, self.calibration = model.looks, model.calibration
        self.fit = Fit(model.shape[1], model.shape[0], fit) if self.pictures else nn.Identity()
        self.register_buffer("mean", model.mean.clone())
        self.register_buffer("std", model.std.clone())
        example = torch.zeros(2, *model.shape)
        with torch.no_grad():
            self.embed = frozen(model.trunk.quick, Draws()) if model.trunk else None
            x = self.normalised(example)
            self.nets = nn.ModuleList(Network(net, x, self.draws) for net in model.nets)
            self.witnesses = nn.ModuleList(Network(net, x, self.draws) for net in model.witnesses)
        self.count = draws if has_dropout(model.nets[0]) else 0

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the uncertainties."""
        return ("confidence", *(DRAWN if self.count else ()), *(["witness"] if len(self.witnesses) else []))

    def normalised(self, x: Tensor) -> Tensor:
        seen = x if self.embed is None else rooted(self.embed(x))
        return (seen - self.mean) / self.std

    @property
    def names(self) -> list[str]:
        """Of the outputs."""
        return [name for name in Answers._fields if name != "answered" or self.decides]

    def forward(self, images: Tensor, seed: Tensor) -> tuple[Tensor, ...]:
        """The outputs, in the order of `names`."""
        return tuple(value for value in self.answer(images, seed) if value is not None)

    def answer(self, images: Tensor, seed: Tensor) -> Answers:
        x = self.normalised(self.fit(images))
        views, sides = self.looks(x), len(self.looks.sides(x))
        clean, drawn = [], []
        for number, net in enumerate(self.nets):
            trunks = [net.trunk(view) for view in views]  # type: ignore[operator]
            clean.append(mean([net.rest(trunk).softmax(1) for trunk in trunks]))  # type: ignore[operator]
            if self.count:
                drawn.append(self.drawn(net.rest, trunks[:sides], seed + number))  # type: ignore[arg-type]
        p = mean(clean)
        found = [1 - p.amax(1)]
        if self.count:
            found += metrics(torch.cat(drawn))
        if len(self.witnesses):
            other = mean([mean([net(view).softmax(1) for view in views[:sides]]) for net in self.witnesses])
            found.append(entropy(mean([p, other])))
        return self.decided(p, torch.stack(found, 1))

    def drawn(self, rest: nn.Module, trunks: list[Tensor], seed: Tensor) -> Tensor:
        """(T, N, C); every other draw is of the mirror image, if there is one."""
        shared = torch.cat([trunks[t % len(trunks)] for t in range(self.count)])  # (T·N, …)
        self.draws.seed, self.draws.count = seed, self.count
        p = rest(shared).softmax(1)  # (T·N, C)
        self.draws.seed = None
        return p.reshape(self.count, -1, p.shape[1])

    def decided(self, p: Tensor, uncertainty: Tensor) -> Answers:
        known, label = self.calibration, p.argmax(1)
        if known:
            p = (p.clamp(min=TINY).log() / known.temperature).softmax(1)
        answered = decision(known, uncertainty, self.columns) if known and self.decides else None
        return Answers(label, p, p.amax(1), uncertainty, answered)

    @property
    def decides(self) -> bool:
        """Whether its draws are those that the run was calibrated with."""
        known = self.calibration
        return bool(known and known.metric in self.columns and known.draws in (0, self.count))


def decision(known: Calibration, uncertainty: Tensor, columns: tuple[str, ...]) -> Tensor:
    u, threshold = uncertainty[:, columns.index(known.metric)], known.chosen.threshold
    return u < torch.inf if threshold is None else u < threshold


def mean(several: list[Tensor]) -> Tensor:
    return several[0] if len(several) == 1 else torch.stack(several).mean(0)


def entropy(p: Tensor) -> Tensor:
    return -(p * p.clamp(min=TINY).log()).sum(-1)


def metrics(draws: Tensor) -> list[Tensor]:
    """PE, PV, MI and EV of draws (T, N, C), in double precision as `certainty.streaming` has them."""
    p = draws.double()
    middle, entropies = p.mean(0), entropy(p)
    pe, each = entropy(middle), entropies.mean(0)
    pv = (p - middle).square().mean(0).sum(-1)
    ev = (entropies - each).square().mean(0)
    return [value.float() for value in (pe, pv, pe - each, ev)]
