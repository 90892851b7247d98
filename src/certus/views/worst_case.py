"""The small change of a network's weights or connections that changes its answers most. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from certus.views.adversarial import TINY, unit

Weights = Mapping[str, Tensor]
Divergence = Callable[[Tensor, Weights], Tensor]  # perturbation of the images, weights -> mean KL


def length(parts: Weights) -> Tensor:
    """The Euclidean norm of all numbers together, at least a tiny positive number."""
    return torch.stack([t.norm() for t in parts.values()]).norm().clamp(min=TINY)


def weights_of(net: nn.Module) -> dict[str, Tensor]:
    """The weights of its convolutions and linear layers, in order; neither biases nor batch norm."""
    return {
        f"{name}.weight": layer.weight
        for name, layer in net.named_modules()
        if isinstance(layer, nn.Conv2d | nn.Linear)
    }


def worst_shift(
    divergence: Divergence, weights: Weights, x: Tensor, start: Weights, xi: float
) -> tuple[Tensor, Weights]:
    """One power iteration for images and weights together: a direction per image, and one of length 1 for all weights.

    `start` holds random directions; the name "" is that of the images.
    """
    r = (xi * unit(start[""].view_as(x))).requires_grad_()
    size = length({n: start[n] for n in weights})
    shifted = {n: (w.detach() + xi * start[n] / size).requires_grad_() for n, w in weights.items()}
    for_images, *for_weights = torch.autograd.grad(divergence(r, shifted), [r, *shifted.values()])
    gradient = dict(zip(shifted, for_weights, strict=True))
    size = length(gradient)
    return unit(for_images), {n: g / size for n, g in gradient.items()}


def worst_mask(divergence: Divergence, weights: Weights, x: Tensor, start: Weights, xi: float, drop: float) -> Weights:
    """1 for each connection to keep and 0 for each to drop, so that dropping changes the answers most.

    max over s ∈ {±1} of (s + 1)ᵀ H (s + 1), H the Hessian in the dropped share m of each weight, is relaxed to the main
    eigenvector of [[H, H1], [1ᵀH, 0]]; one iteration gets H's products as gradients at m = ξ(s + s₀) and at m = ξs.
    """
    no_shift = torch.zeros_like(x)
    s0 = start["corner"]
    size = (length({n: start[n] for n in weights}).square() + s0.square()).sqrt()

    def gradient(shift: Tensor | float) -> dict[str, Tensor]:
        m = {n: (xi * (start[n] / size + shift)).requires_grad_() for n in weights}
        value = divergence(no_shift, {n: w.detach() * (1 - m[n]) for n, w in weights.items()})
        return dict(zip(m, torch.autograd.grad(value, list(m.values())), strict=True))

    top, bottom = gradient(s0 / size), torch.stack([g.sum() for g in gradient(0.0).values()]).sum()
    sign = torch.where(bottom < 0, -1.0, 1.0)
    masks = {}
    for name, s in top.items():
        order = (sign * s).flatten().argsort(descending=True)
        mask = torch.ones_like(order, dtype=s.dtype)
        mask[order[: round(drop * len(order))]] = 0.0
        masks[name] = mask.view_as(s)
    return masks
