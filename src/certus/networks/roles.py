"""What a network is called in a recipe: student, teacher 2, …"""

from __future__ import annotations

from torch import nn

from certus.errors import UsageError


def call(net: nn.Module, role: str) -> nn.Module:
    """Give a network its role; the same network is returned."""
    net.__dict__["role"] = role
    return net


def role(net: nn.Module) -> str:
    return str(net.__dict__.get("role", "student"))


def feature_size(net: nn.Module) -> int:
    """D of what its head reads."""
    head = getattr(net, "head", None)
    if not isinstance(head, nn.Linear):
        raise UsageError(
            "This method compares features, but the network does not name them: call its last linear layer `head`."
        )
    return head.in_features
