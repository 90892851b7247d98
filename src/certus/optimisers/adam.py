"""Adam with decoupled weight decay, for networks that start from weights learnt elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

HEAD = 10.0  # learning rate of the head, which starts from nothing, relative to that of the trunk


def adam(students: Sequence[nn.Module], learning_rate: float, weight_decay: float) -> torch.optim.AdamW:
    """θ ← θ − η(m̂ / (√v̂ + ε) + δθ); the heads learn ten times as fast."""
    groups: dict[float, list[nn.Parameter]] = {1.0: [], HEAD: []}
    for net in students:
        for name, p in ((name, p) for name, p in net.named_parameters() if p.requires_grad):
            groups[HEAD if name.startswith("head.") else 1.0].append(p)
    return torch.optim.AdamW(
        [
            {"params": parameters, "lr": learning_rate * factor, "initial_lr": learning_rate * factor}
            for factor, parameters in groups.items()
            if parameters
        ],
        weight_decay=weight_decay,
        foreach=True,
    )
