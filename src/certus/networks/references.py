"""References from one module to another that are not part of its state."""

from __future__ import annotations

from typing import Any

from torch import nn


def refer(owner: nn.Module, **others: Any) -> None:
    """Set attributes that appear neither in the owner's parameters nor in its state dict."""
    owner.__dict__.update(others)
