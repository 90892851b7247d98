"""What a network is called in a recipe: student, teacher 2, …"""

from __future__ import annotations

from torch import nn


def call(net: nn.Module, role: str) -> nn.Module:
    """Give a network its role; the same network is returned."""
    net.__dict__["role"] = role
    return net


def role(net: nn.Module) -> str:
    return str(net.__dict__.get("role", "student"))
