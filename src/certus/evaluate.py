"""What trained networks answer. Nothing here trains or chooses."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from certus.models.modes import dropout_only, evaluating
from certus.randomness import seed_global
from certus.scores import error

Normalise = Callable[[Tensor], Tensor]  # images as stored -> what networks see


@torch.no_grad()
def probabilities(net: nn.Module, normalise: Normalise, images: Tensor, batch: int = 512) -> Tensor:
    """The clean answers (N, C) to stored images, no augmentation."""
    device = next(net.parameters()).device
    with evaluating(net):
        return torch.cat([net(normalise(part.to(device))).softmax(1).cpu() for part in images.split(batch)])


@torch.no_grad()
def draws(
    net: nn.Module, normalise: Normalise, images: Tensor, passes: int = 10, seed: int = 0, batch: int = 512
) -> Tensor:
    """T answers (T, N, C) under dropout to the images as they are: what certainty is computed from."""
    device = next(net.parameters()).device
    drawn = []
    with dropout_only(net):
        for i, part in enumerate(images.split(batch)):
            x = normalise(part.to(device))
            passed = []
            for t in range(passes):
                seed_global(seed, "evaluation draw", i, t, device=device)
                passed.append(net(x).softmax(1).cpu())
            drawn.append(torch.stack(passed))
    return torch.cat(drawn, dim=1)


def errors(nets: Sequence[nn.Module], normalise: Normalise, images: Tensor, labels: Tensor) -> list[float]:
    """Each network's error; a circle's result is their mean, never their ensemble's."""
    return [error(probabilities(net, normalise, images), labels) for net in nets]
