"""Answers of trained networks. Nothing here trains or chooses."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from certus.certainty.metrics import METRICS, witnessed_entropy
from certus.certainty.scores import error
from certus.certainty.streaming import Moments
from certus.core.method import Method
from certus.data import Part
from certus.distributed.team import ALONE, Team
from certus.networks.fused import to_channels_last
from certus.networks.inference import quick_stages
from certus.networks.modes import dropout_only, evaluating, has_dropout
from certus.networks.pretrained import Pretrained
from certus.randomness import seed_global
from certus.views.looks import WHOLE, Looks

BATCH, PIXELS = 512, 2**21  # images at a time, and what they have together as the network sees them, at most
Normalise = Callable[[Tensor], Tensor]  # images as stored -> what networks see


def at_a_time(net: nn.Module, images: Tensor) -> int:
    """How many images a network answers at a time, so that large ones need no more memory than small ones."""
    enlarged = net.first.size if isinstance(net, Pretrained) else 0
    return max(1, min(BATCH, PIXELS // max(math.prod(images.shape[2:]), enlarged**2, 1)))


@torch.no_grad()
def probabilities(
    net: nn.Module, normalise: Normalise, images: Tensor, looks: Looks = WHOLE, batch: int = 0, team: Team = ALONE
) -> Tensor:
    """The clean answers (N, C) to stored images; the mean over these `looks` of each image."""
    device = next(net.parameters()).device

    def answered(part: Tensor) -> Tensor:
        x = normalise(part.to(device))
        stages = nn.Sequential(*quick_stages(net, x))
        with evaluating(stages):
            return torch.stack([stages(to_channels_last(seen)).softmax(1) for seen in looks(x)]).mean(0).cpu()

    return torch.cat(team.each(answered, images.split(batch or at_a_time(net, images))))


@torch.no_grad()
def uncertainties(
    nets: Sequence[nn.Module],
    normalise: Normalise,
    images: Tensor,
    passes: int = 10,
    seed: int = 0,
    looks: Looks = WHOLE,
    batch: int = 0,
    team: Team = ALONE,
) -> dict[str, Tensor]:
    """Every metric (N,) of T answers of each network under dropout to the images as they are.

    Draws have no views of their own and differ only from the first dropout on: all before it is computed once. If
    the `looks` mirror, every other draw is an answer to the mirror image.
    """
    device = next(nets[0].parameters()).device
    parts = images.split(batch or at_a_time(nets[0], images))

    def measured(numbered: tuple[int, Tensor]) -> Tensor:
        i, x, moments = numbered[0], normalise(numbered[1].to(device)), None
        for n, net in enumerate(nets):
            first, *others = quick_stages(net, x)
            with dropout_only(nn.ModuleList([first, *others])):
                sides = [to_channels_last(side) for side in looks.sides(x)]
                trunks = [first(side) if others else side for side in sides]
                rest = nn.Sequential(*(others or [first]))
                for t in range(passes):
                    seed_global(seed + n, "evaluation draw", i, t, device=device)
                    drawn = rest(trunks[t % len(trunks)]).softmax(1)
                    moments = moments or Moments(len(x), drawn.shape[1], device)
                    moments.add(drawn)
        return torch.stack([getattr(moments, name).cpu() for name in METRICS])

    found = torch.cat(team.each(measured, list(enumerate(parts))), 1)  # (metrics, N)
    return {name: values.clone() for name, values in zip(METRICS, found, strict=True)}


def answers(
    method: Method, normalise: Normalise, part: Part, seed: int, looks: Looks = WHOLE, team: Team = ALONE
) -> dict[str, Tensor]:
    """The answers that a run keeps: `probabilities` (n, N, C) of each network, `labels` (N,), and every metric (N,).

    The metrics are those of the first network: of ten draws, if it has dropout, and of its witness, if it has one.
    """
    nets, images = method.answers, part.images
    clean = torch.stack([probabilities(net, normalise, images, looks, team=team) for net in nets])
    found = {"probabilities": clean, "labels": part.labels}
    if has_dropout(nets[0]):
        found |= uncertainties(nets[:1], normalise, images, 10, seed, looks, team=team)
    for witness in method.witnesses[:1]:
        doubted = probabilities(witness, normalise, images, looks.unmoved, team=team)
        found["witness"] = witnessed_entropy(clean[0], doubted)
    return found


def errors(
    nets: Sequence[nn.Module],
    normalise: Normalise,
    images: Tensor,
    labels: Tensor,
    looks: Looks = WHOLE,
    team: Team = ALONE,
) -> list[float]:
    """Each network's error; a circle's result is their mean, never their ensemble's."""
    return [error(probabilities(net, normalise, images, looks, team=team), labels) for net in nets]
