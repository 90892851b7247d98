"""Modules that another module follows without owning them."""

from __future__ import annotations

from typing import Any

from torch import nn


def refer(owner: nn.Module, **others: Any) -> None:
    """Set attributes that are not part of the owner: neither in its parameters nor in its state dict."""
    owner.__dict__.update(others)
