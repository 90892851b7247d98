"""The direction in which an answer changes most, by power iteration: pure functions of the divergence that it makes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

TINY = torch.finfo(torch.float32).tiny  # so that only a direction of zeros has no length


def unit(direction: Tensor) -> Tensor:
    """Each image's direction scaled to length 1; a direction of zeros stays one."""
    flat = direction.flatten(1)
    flat = flat / flat.abs().amax(1, keepdim=True).clamp(min=TINY)  # to size 1 first: squares of tiny numbers vanish
    return (flat / flat.norm(dim=1, keepdim=True).clamp(min=TINY)).view_as(direction)


def worst_direction(
    divergence: Callable[[Tensor], Tensor], start: Tensor, xi: float = 1e-2, iterations: int = 1
) -> Tensor:
    """d ← unit(∇_r D(r) at r = ξd): it tends to the main eigenvector of D's Hessian at 0, where D has its minimum 0.

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
