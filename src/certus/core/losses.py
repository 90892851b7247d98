"""Distances between answers, one value per image: (B, C) logits and a temperature per image -> (B,).

The logits of student and target are divided by the same temperature V_i. No gradient enters the target.
"""

from __future__ import annotations

from collections.abc import Callable
from math import log

import torch
from torch import Tensor
from torch.nn import functional as F

Distance = Callable[[Tensor, Tensor, Tensor], Tensor]


def tempered(logits: Tensor, temperature: Tensor) -> Tensor:
    """z_i / V_i."""
    return logits / temperature[:, None]


def mse(student: Tensor, target: Tensor, temperature: Tensor) -> Tensor:
    """‖softmax(z_s/V) − softmax(z_t/V)‖², summed over classes as the paper writes it (not averaged)."""
    p = tempered(student, temperature).softmax(1)
    q = tempered(target.detach(), temperature).softmax(1)
    return (p - q).square().sum(1)


def cross_entropy(student: Tensor, target: Tensor, temperature: Tensor) -> Tensor:
    """−Σ_c q_c log p_c, q = softmax(z_t/V), p = softmax(z_s/V)."""
    q = tempered(target.detach(), temperature).softmax(1)
    return -(q * tempered(student, temperature).log_softmax(1)).sum(1)


def kl(student: Tensor, target: Tensor, temperature: Tensor) -> Tensor:
    """KL(q ‖ p) = Σ_c q_c (log q_c − log p_c)."""
    log_q = tempered(target.detach(), temperature).log_softmax(1)
    log_p = tempered(student, temperature).log_softmax(1)
    return F.kl_div(log_p, log_q, log_target=True, reduction="none").sum(1)


def js(student: Tensor, target: Tensor, temperature: Tensor) -> Tensor:
    """Jensen-Shannon: ½KL(p ‖ m) + ½KL(q ‖ m), m = ½(p + q)."""
    log_p = tempered(student, temperature).log_softmax(1)
    log_q = tempered(target.detach(), temperature).log_softmax(1)
    log_m = torch.logaddexp(log_p, log_q) - log(2)
    return 0.5 * (log_p.exp() * (log_p - log_m) + log_q.exp() * (log_q - log_m)).sum(1)


def entropy(logits: Tensor, temperature: Tensor) -> Tensor:
    """−Σ_c p_c log p_c, p = softmax(z/V)."""
    log_p = tempered(logits, temperature).log_softmax(1)
    return -(log_p.exp() * log_p).sum(1)
