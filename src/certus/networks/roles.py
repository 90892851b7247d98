"""The name of a network in a recipe: student, teacher 2, …"""

from __future__ import annotations

from torch import nn

from certus.errors import UsageError


def set_role(net: nn.Module, role: str) -> nn.Module:
    """Give a network its role, and return the same network."""
    net.__dict__["role"] = role
    return net


def role(net: nn.Module) -> str:
    return str(net.__dict__.get("role", "student"))


def feature_size(net: nn.Module) -> int:
    """D, the number of features that its head reads."""
    head = getattr(net, "head", None)
    if not isinstance(head, nn.Linear):
        raise UsageError(
            "This method compares features, but the network does not say which layer reads them: name its last "
            "linear layer `head`."
        )
    return head.in_features
