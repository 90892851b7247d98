"""Muon: momentum whose update is made orthogonal, for filters and hidden matrices; SGD for everything else.

A filter bank (O, I, kh, kw) is the matrix (O, I·kh·kw). Its update is near the matrix with all singular values 1,
so that every direction moves equally far, however small its gradient. Each bank keeps its Frobenius norm √O: only its
direction is learnt, and no weight decay is needed. (Jordan et al. 2024, Muon.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the quintic: steepest at 0, singular values end between 0.7 and 1.2


def orthogonalised(matrix: Tensor, steps: int = 3) -> Tensor:
    """The matrix with its singular values pushed towards 1 by Newton–Schulz steps X ← aX + b(XXᵀ)X + c(XXᵀ)²X."""
    a, b, c = COEFFICIENTS
    x = matrix / matrix.norm().clamp(min=1e-7)
    wide = len(x) <= x.shape[1]
    x = x if wide else x.T
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * (gram @ gram)) @ x
    return x if wide else x.T


def muon_update(gradient: Tensor, momentum: Tensor, decay: float, steps: int) -> tuple[Tensor, Tensor]:
    """m' = μm + g; update = orthogonalised(g + μm'), in the shape of the gradient; the new momentum."""
    moved = decay * momentum + gradient
    look_ahead = gradient + decay * moved
    return orthogonalised(look_ahead.reshape(len(gradient), -1), steps).view_as(gradient), moved


def kept_norm(weight: Tensor) -> Tensor:
    """The bank at the norm that an identity start has: √O."""
    return weight * (len(weight) ** 0.5 / weight.norm().clamp(min=1e-7))


class Muon(torch.optim.Optimizer):
    """θ ← √O·θ/‖θ‖ − η·orthogonalised(momentum) for groups with `matrices`, Nesterov's SGD for the others."""

    def __init__(self, groups: Iterable[dict[str, Any]]) -> None:
        super().__init__(groups, {"lr": 0.0, "momentum": 0.0, "weight_decay": 0.0, "matrices": False, "steps": 3})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        assert closure is None, "the loss is computed by the caller"
        for group in self.param_groups:
            rate, momentum = group["lr"], group["momentum"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                before = state.get("momentum_buffer")
                before = torch.zeros_like(p) if before is None else before
                if group["matrices"]:
                    update, after = muon_update(p.grad, before, momentum, group["steps"])
                    p.copy_(kept_norm(p).add_(update, alpha=-rate))
                else:
                    gradient = p.grad.add(p, alpha=group["weight_decay"])
                    after = momentum * before + gradient
                    p.add_(gradient.add(after, alpha=momentum), alpha=-rate)
                state["momentum_buffer"] = after


def is_matrix(name: str, parameter: nn.Parameter) -> bool:
    """Filters and hidden matrices; the head, norms and biases are not."""
    return parameter.ndim >= 2 and not name.startswith("head.")
