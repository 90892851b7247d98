"""Two dropouts: one of the same distribution in less time, one with the same mask in every memory format.

Their functions may be overridden as torch's own are (`torch.overrides`), by a process that has a part of a batch.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.overrides import handle_torch_function, has_torch_function_unary

LEVELS = 1 << 16


class QuickDropout(nn.Dropout):
    """x · m / (1 − q), m = [u ≥ q], u uniform over 16 bits, q = p rounded to 1/65536.

    It takes a seventh of torch's time where torch draws one number at a time (CPUs that are not Intel's). Random
    numbers come from the global generator, four values from each 64 bits. An image's mask is the same in both memory
    formats. On a GPU, for q = 0 or 1, and while `exact` is set, it is torch's own dropout.
    """

    exact = False

    def forward(self, x: Tensor) -> Tensor:
        if self.exact or not self.training or x.device.type != "cpu" or round(self.p * LEVELS) in (0, LEVELS):
            return super().forward(x)
        return quick_dropout(x, self.p, True, self.inplace)


def quick_dropout(x: Tensor, p: float, training: bool, inplace: bool) -> Tensor:
    if has_torch_function_unary(x):
        return handle_torch_function(quick_dropout, (x,), x, p, training, inplace)
    threshold = round(p * LEVELS)
    bits = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None).view(torch.int16)
    shape = (len(x), *x.shape[2:], x.shape[1]) if x.ndim == 4 else x.shape  # (B, H, W, C)
    kept = bits[: x.numel()].view(shape) >= threshold - LEVELS // 2
    mask = kept.to(x.dtype).mul_(LEVELS / (LEVELS - threshold))
    mask = mask.permute(0, 3, 1, 2) if x.ndim == 4 else mask  # (B, C, H, W)
    return x.mul_(mask) if inplace else x * mask


class OrderedDropout(nn.Dropout):
    """torch's dropout with the mask of an image in torch's default memory format, whatever the format of the input.

    On some CPUs torch assigns random numbers in the order of memory, so the same seed gives another mask in
    channels_last.
    """

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0 or x.is_contiguous():
            return super().forward(x)
        return ordered_dropout(x, self.p, True, self.inplace)


def ordered_dropout(x: Tensor, p: float, training: bool, inplace: bool) -> Tensor:
    if has_torch_function_unary(x):
        return handle_torch_function(ordered_dropout, (x,), x, p, training, inplace)
    if p == 1:
        return x * 0
    mask = torch.empty(x.shape, dtype=x.dtype, device=x.device).bernoulli_(1 - p).div_(1 - p)
    return x.mul_(mask) if inplace else x * mask
