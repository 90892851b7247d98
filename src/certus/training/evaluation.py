"""Answers of trained networks. Nothing here trains or chooses."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from certus.certainty.metrics import METRICS
from certus.certainty.scores import error
from certus.certainty.streaming import Moments
from certus.data import Part
from certus.networks.inference import quick_stages
from certus.networks.modes import dropout_only, evaluating, has_dropout
from certus.randomness import seed_global

BATCH = 512
Normalise = Callable[[Tensor], Tensor]  # images as stored -> what networks see


@torch.no_grad()
def probabilities(net: nn.Module, normalise: Normalise, images: Tensor, batch: int = BATCH) -> Tensor:
    """The clean answers (N, C) to stored images, no augmentation."""
    device = next(net.parameters()).device
    parts = []
    for part in images.split(batch):
        x = normalise(part.to(device))
        stages = nn.Sequential(*quick_stages(net, x))
        with evaluating(stages):
            parts.append(stages(x).softmax(1).cpu())
    return torch.cat(parts)


@torch.no_grad()
def uncertainties(
    nets: Sequence[nn.Module], normalise: Normalise, images: Tensor, passes: int = 10, seed: int = 0, batch: int = BATCH
) -> dict[str, Tensor]:
    """Every metric (N,) of T answers of each network under dropout to the images as they are.

    Draws have no views of their own and differ only from the first dropout on: all before it is computed once.
    """
    device = next(nets[0].parameters()).device
    parts: dict[str, list[Tensor]] = {name: [] for name in METRICS}
    for i, part in enumerate(images.split(batch)):
        x, moments = normalise(part.to(device)), None
        for n, net in enumerate(nets):
            first, *others = quick_stages(net, x)
            with dropout_only(nn.ModuleList([first, *others])):
                trunk = first(x) if others else x
                rest = nn.Sequential(*(others or [first]))
                for t in range(passes):
                    seed_global(seed + n, "evaluation draw", i, t, device=device)
                    drawn = rest(trunk).softmax(1)
                    moments = moments or Moments(len(x), drawn.shape[1], device)
                    moments.add(drawn)
        for name, values in parts.items():
            values.append(getattr(moments, name).cpu())
    return {name: torch.cat(values) for name, values in parts.items()}


def answers(nets: Sequence[nn.Module], normalise: Normalise, part: Part, seed: int) -> dict[str, Tensor]:
    """The answers that a run keeps: `probabilities` (n, N, C) of each network, `labels` (N,), and every metric (N,).

    The metrics are those of ten draws of the first network, if it has dropout.
    """
    found = {
        "probabilities": torch.stack([probabilities(net, normalise, part.images) for net in nets]),
        "labels": part.labels,
    }
    return found | (uncertainties(nets[:1], normalise, part.images, 10, seed) if has_dropout(nets[0]) else {})


def errors(nets: Sequence[nn.Module], normalise: Normalise, images: Tensor, labels: Tensor) -> list[float]:
    """Each network's error; a circle's result is their mean, never their ensemble's."""
    return [error(probabilities(net, normalise, images), labels) for net in nets]
