"""Adversarial directions: those in which an answer changes most. Pure functions of a divergence or a loss."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

TINY = torch.finfo(torch.float32).tiny  # keeps the division safe for a direction of zeros


def unit(direction: Tensor) -> Tensor:
    """Scale each image's direction to length 1; a direction of zeros stays as it is."""
    flat = direction.flatten(1)
    flat = flat / flat.abs().amax(1, keepdim=True).clamp(min=TINY)  # to size 1 first: squares of tiny numbers underflow
    return (flat / flat.norm(dim=1, keepdim=True).clamp(min=TINY)).view_as(direction)


def worst_direction(
    divergence: Callable[[Tensor], Tensor], start: Tensor, xi: float = 1e-2, iterations: int = 1
) -> Tensor:
    """Power iteration d ← unit(∇_r D(r) at r = ξd). It converges to the main eigenvector of D's Hessian at 0, where
    D has its minimum 0.

    `divergence` maps a perturbation of the whole batch to one value per image; each image has its own direction.
    """
    d = unit(start)
    for _ in range(iterations):
        r = (xi * d).requires_grad_()
        (gradient,) = torch.autograd.grad(divergence(r).sum(), r)
        d = unit(gradient)
    return d


def worst_sign(loss: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
    """sign ∇_x loss(x): the fast gradient sign direction."""
    x = images.detach().clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(x).sum(), x)
    return gradient.sign()
