"""An optimiser's state as named tensors, for checkpoints."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


def state_tensors(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Every tensor that the optimiser remembers, named PARAMETER.NAME."""
    state = optimiser.state_dict()["state"]
    return {
        f"{i}.{name}": value
        for i, values in state.items()
        for name, value in values.items()
        if isinstance(value, Tensor)
    }


def restore(optimiser: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Put such tensors back."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        i, name = key.split(".", 1)
        state.setdefault(int(i), {})[name] = value
    optimiser.load_state_dict({**optimiser.state_dict(), "state": state})
