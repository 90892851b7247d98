"""Dropout with the same distribution in less time, and with the same mask in another memory format."""

from __future__ import annotations

import torch
from torch import Tensor, nn

LEVELS = 1 << 16


class QuickDropout(nn.Dropout):
    """x · m / (1 − q), m = [u ≥ q], u uniform over 16 bits, q = p rounded to 1/65536.

    A seventh of torch's time where torch draws number by number (CPUs that are not Intel's). Random numbers come from
    the global generator, four values from each 64 bits; a picture's mask is the same in both memory formats. Where it
    is not worth it (GPU), for q = 0 or 1, and while `exact`, it is torch's own dropout.
    """

    exact = False

    def forward(self, x: Tensor) -> Tensor:
        threshold = round(self.p * LEVELS)
        if self.exact or not self.training or x.device.type != "cpu" or threshold in (0, LEVELS):
            return super().forward(x)
        bits = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None).view(torch.int16)
        shape = (len(x), *x.shape[2:], x.shape[1]) if x.ndim == 4 else x.shape  # (B, H, W, C)
        kept = bits[: x.numel()].view(shape) >= threshold - LEVELS // 2
        mask = kept.to(x.dtype).mul_(LEVELS / (LEVELS - threshold))
        mask = mask.permute(0, 3, 1, 2) if x.ndim == 4 else mask  # (B, C, H, W)
        return x.mul_(mask) if self.inplace else x * mask


class OrderedDropout(nn.Dropout):
    """torch's dropout with the mask of a picture that is stored channel by channel, however this one is stored.

    On some CPUs torch hands out random numbers in the order of memory, so that the same seed is another mask in
    channels_last.
    """

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0 or x.is_contiguous():
            return super().forward(x)
        if self.p == 1:
            return x * 0
        mask = torch.empty(x.shape, dtype=x.dtype, device=x.device).bernoulli_(1 - self.p).div_(1 - self.p)
        return x.mul_(mask) if self.inplace else x * mask
