"""Batch norm in evaluation mode is an affine map. It is folded into the convolution before it, or becomes `Affine`.

s (W x + b − μ) + β = W' x + b',   W' = s W,   b' = s (b − μ) + β,   s = γ / √(σ² + ε)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

LINEAR = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
ACTIVATIONS = (nn.ReLU, nn.ReLU6, nn.LeakyReLU)


class Fold(NamedTuple):
    """Where a folded weight comes from, and where it goes."""

    linear: Any  # layer of the network; None: there is no layer to fold the norm into
    norm: Any
    weight: Tensor  # of the fused copy
    bias: Tensor


class Affine(nn.Module):
    """s x + t per channel: a batch norm that has no convolution before it."""

    weight: Tensor
    bias: Tensor

    def __init__(self, like: Tensor) -> None:
        super().__init__()
        self.register_buffer("weight", torch.empty_like(like))
        self.register_buffer("bias", torch.empty_like(like))

    def forward(self, x: Tensor) -> Tensor:
        shape = (-1, *[1] * (x.ndim - 2))  # (C, 1, 1)
        return torch.addcmul(self.bias.view(shape), x, self.weight.view(shape))


def fold(copy: nn.Module, originals: Mapping[int, nn.Module]) -> list[Fold]:
    """Take the batch norms out of a copy of a network; `originals` maps the id of each module to its original.

    In an `nn.Sequential` the activation after a convolution or norm is made to work in place: no other module reads
    its input.
    """
    uses = Counter(id(m) for _, m in copy.named_modules(remove_duplicate=False))
    folds = []
    for parent in [m for m in copy.modules() if type(m).forward is nn.Sequential.forward]:
        for (_, a), (name, b) in pairwise(list(parent._modules.items())):
            if a is None or b is None or uses[id(a)] > 1 or uses[id(b)] > 1:
                continue
            if type(b) in ACTIVATIONS and type(a) in (*LINEAR, *NORMS):
                cast(nn.ReLU, b).inplace = True
            if type(a) in LINEAR and is_affine(b) and len(cast(Tensor, a.weight)) == b.num_features:
                folds.append(absorb(a, originals[id(a)], originals[id(b)]))
                parent._modules[name] = nn.Identity()
    for parent in list(copy.modules()):
        for name, child in parent._modules.items():
            if child is not None and is_affine(child):
                norm = cast(nn.BatchNorm2d, originals[id(child)])
                affine = Affine(cast(Tensor, norm.running_var))
                parent._modules[name] = affine
                folds.append(Fold(None, norm, affine.weight, affine.bias))
    return folds


def is_affine(module: nn.Module) -> bool:
    """A batch norm with running statistics; without them it uses those of the batch even in evaluation mode."""
    return type(module) in NORMS and module.running_var is not None


def absorb(linear: nn.Module, original: nn.Module, norm: nn.Module) -> Fold:
    """Give the copied layer its own weight and bias, which `renew` fills."""
    weight = cast(Tensor, original.weight)
    layout = torch.channels_last if weight.ndim == 4 else torch.preserve_format
    folded = torch.empty_like(weight, requires_grad=False, memory_format=layout)
    bias = torch.empty_like(cast(Tensor, norm.running_var))
    linear._parameters.clear()
    linear._buffers.update(weight=folded, bias=bias)
    return Fold(original, norm, folded, bias)


@torch.no_grad()
def renew(folds: Sequence[Fold]) -> None:
    """Compute the folded weights from the network's current ones, in place."""
    if not folds:
        return
    scales = torch._foreach_add([f.norm.running_var for f in folds], [f.norm.eps for f in folds])
    torch._foreach_sqrt_(scales)
    torch._foreach_reciprocal_(scales)
    for f, scale in zip(folds, scales, strict=True):
        linear, norm = f.linear, f.norm
        if norm.weight is not None:
            scale.mul_(norm.weight)
        if linear is None:
            f.weight.copy_(scale)
        else:
            torch.mul(linear.weight, scale.view(-1, *[1] * (f.weight.ndim - 1)), out=f.weight)
        torch.mul(norm.running_mean, scale, out=f.bias).neg_()  # −s μ
        if linear is not None and linear.bias is not None:
            f.bias.addcmul_(linear.bias, scale)
        if norm.bias is not None:
            f.bias.add_(norm.bias)
