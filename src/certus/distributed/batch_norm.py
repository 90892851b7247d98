"""Batch norm whose statistics are those of the whole batch, for any device.

torch's SyncBatchNorm exists on GPUs alone. This is the same in four steps of torch's own kernels:

    forward    μ_r, σ²_r of this process's rows;  μ, σ² of all from all (μ_r, σ²_r, count);  y = γ(x − μ)/σ + β
    backward   S = Σ dy and T = Σ dy·x̂ over all;  dx = γ/σ (dy − S/N − x̂ T/N)
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from certus.distributed.collectives import gathered, summed


def batch_norm(
    x: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """`torch.nn.functional.batch_norm`, with statistics over the rows of all processes."""
    if not training:
        return F.batch_norm(x, running_mean, running_var, weight, bias, False, momentum, eps)
    mean, variance, count = statistics(x.detach())
    if count < 2:
        raise ValueError(f"Batch norm needs more than one value per channel, but has inputs of shape {tuple(x.shape)}.")
    with torch.no_grad():
        if running_mean is not None and running_var is not None:
            running_mean.lerp_(mean.to(running_mean.dtype), momentum)
            running_var.lerp_((variance * (count / (count - 1))).to(running_var.dtype), momentum)
    return Normalised.apply(x, weight, bias, mean, variance, count, eps)


def statistics(x: Tensor) -> tuple[Tensor, Tensor, float]:
    """μ (C,), σ² (C,) and how many values each is over; combined in double precision, in the order of the ranks."""
    precise = x if x.dtype in (torch.float32, torch.float64) else x.float()
    mean, variance = torch.batch_norm_update_stats(precise, None, None, 0.0)
    count = mean.new_full((1,), x.numel() / x.shape[1])
    found = gathered(torch.cat([mean, variance, count]).double())  # (n, 2C + 1)
    share = found[:, -1:] / found[:, -1].sum()  # (n, 1)
    means, variances = found[:, :-1].chunk(2, 1)
    whole = (share * means).sum(0)
    spread = (share * (variances + (means - whole).square())).sum(0)
    return whole.to(mean.dtype), spread.to(mean.dtype), float(found[:, -1].sum())


class Normalised(Function):
    """γ(x − μ)/σ + β; backward as if all rows were here."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        mean: Tensor,
        variance: Tensor,
        count: float,
        eps: float,
    ) -> Tensor:
        ctx.save_for_backward(x, weight, mean, variance)
        ctx.count, ctx.eps, ctx.affine = count, eps, (weight is not None, bias is not None)
        return F.batch_norm(x, mean, variance, weight, bias, False, 0.0, eps)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, mean, variance = ctx.saved_tensors
        scale = torch.ones_like(mean) if weight is None else weight
        # with fixed statistics: dy γ/σ, and this process's Σ dy·x̂ and Σ dy
        dx, t, s = torch.ops.aten.native_batch_norm_backward(
            dy, x, scale, mean, variance, None, None, False, ctx.eps, [True, True, True]
        )
        total_t, total_s = summed(torch.cat([t, s]).to(mean.dtype)).chunk(2)
        factor = scale * (variance + ctx.eps).rsqrt() / ctx.count
        slope = factor * total_t * (variance + ctx.eps).rsqrt()
        level = factor * total_s - slope * mean
        channels = (1, -1, *[1] * (x.ndim - 2))
        dx = dx.addcmul_(x, slope.view(channels).to(dx.dtype), value=-1).sub_(level.view(channels).to(dx.dtype))
        weighted, shifted = ctx.affine
        return dx, t if weighted else None, s if shifted else None, None, None, None, None
