"""SGD with Nesterov momentum, the paper's optimiser."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn


def sgd(
    parameters: Iterable[nn.Parameter], learning_rate: float, momentum: float, weight_decay: float
) -> torch.optim.SGD:
    """v ← μv + g + δθ, θ ← θ − η(g + δθ + μv); plain gradient descent without momentum."""
    return torch.optim.SGD(
        [{"params": list(parameters), "initial_lr": learning_rate}],
        lr=learning_rate,
        momentum=momentum,
        weight_decay=weight_decay,
        nesterov=momentum > 0,
        foreach=True,
    )
