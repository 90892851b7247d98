"""Muon: momentum whose update is made orthogonal, for filters and hidden matrices; Adam for everything else.

A filter bank (O, I, kh, kw) is the matrix (O, I·kh·kw). Its update is near the matrix with all singular values 1,
so that every direction moves equally far, however small its gradient. Each bank keeps its Frobenius norm √O: only its
direction is learnt, and no weight decay is needed. (Jordan et al. 2024, Muon.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
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


def moved(gradient: Tensor, momentum: Tensor, decay: float) -> tuple[Tensor, Tensor]:
    """m' = μm + g, and the matrix g + μm' whose orthogonal form is the update."""
    momentum = decay * momentum + gradient
    look_ahead = gradient + decay * momentum
    return momentum, look_ahead.reshape(len(gradient), -1)


def kept_norm(weight: Tensor) -> Tensor:
    """The bank at the norm that an identity start has: √O."""
    return weight * (len(weight) ** 0.5 / weight.norm().clamp(min=1e-7))


def adam_update(mean: Tensor, square: Tensor, number: int, betas: tuple[float, float]) -> Tensor:
    """m̂ / (√v̂ + ε) of Adam at its number-th step, counted from 1."""
    first, second = (1 - beta**number for beta in betas)
    return (mean / first) / ((square / second).sqrt() + 1e-8)


Each = Callable[[Callable[[Tensor], Tensor], Sequence[Tensor]], list[Tensor]]  # a function of each of these matrices


def one_by_one(work: Callable[[Tensor], Tensor], matrices: Sequence[Tensor]) -> list[Tensor]:
    return [work(matrix) for matrix in matrices]


class Muon(torch.optim.Optimizer):
    """θ ← √O·θ/‖θ‖ − η·orthogonalised(momentum) for groups of `matrices`, Adam for the others."""

    def __init__(self, groups: Iterable[dict[str, Any]], each: Each = one_by_one) -> None:
        defaults = {"lr": 0.0, "momentum": 0.6, "betas": (0.85, 0.98), "matrices": False, "iterations": 3}
        super().__init__(groups, defaults)
        self.each = each

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        assert closure is None, "the caller computes the loss"
        for group in self.param_groups:
            if group["matrices"]:
                self.move_matrices([p for p in group["params"] if p.grad is not None], group)
                continue
            for p in group["params"]:
                if p.grad is not None:
                    self.move(p, p.grad, group)

    def move_matrices(self, parameters: Sequence[nn.Parameter], group: dict[str, Any]) -> None:
        matrices = []
        for p in parameters:
            state = self.state[p]
            before = state["momentum"] if state else torch.zeros_like(p)
            assert p.grad is not None
            state["momentum"], matrix = moved(p.grad, before, group["momentum"])
            matrices.append(matrix)
        updates = self.each(partial(orthogonalised, steps=group["iterations"]), matrices)
        for p, update in zip(parameters, updates, strict=True):
            p.copy_(kept_norm(p).add_(update.view_as(p), alpha=-group["lr"]))

    def move(self, p: nn.Parameter, gradient: Tensor, group: dict[str, Any]) -> None:
        state, betas = self.state[p], group["betas"]
        if not state:
            state.update(mean=torch.zeros_like(p), square=torch.zeros_like(p), step=torch.tensor(0))
        state["mean"].lerp_(gradient, 1 - betas[0])
        state["square"].lerp_(gradient.square(), 1 - betas[1])
        state["step"] += 1
        update = adam_update(state["mean"], state["square"], int(state["step"]), betas)
        p.add_(update, alpha=-group["lr"])


HEAD, REST = 0.25, 0.04  # learning rates of the head and of norms and biases, relative to that of the matrices


def muon(students: Sequence[nn.Module], learning_rate: float, each: Each = one_by_one) -> Muon:
    """Muon for the filters and hidden matrices of these networks, Adam for their heads, norms and biases."""
    groups: dict[float, list[nn.Parameter]] = {1.0: [], HEAD: [], REST: []}
    for net in students:
        for name, p in net.named_parameters():
            groups[HEAD if name.startswith("head.") else 1.0 if p.ndim >= 2 else REST].append(p)
    named = (
        {
            "params": parameters,
            "lr": learning_rate * share,
            "initial_lr": learning_rate * share,
            "matrices": share == 1.0,
        }
        for share, parameters in groups.items()
        if parameters
    )
    return Muon(named, each)
