"""Networks by name. Each maps a batch of images (or vectors) to logits and names its features and its head."""

from __future__ import annotations

from math import prod

from torch import nn

from certus.errors import UsageError, unknown
from certus.models.cnn13 import CNN13
from certus.models.mlp import MLP

NETWORKS = {
    "cnn13": "13 convolutional layers, for images of 16 pixels and more; width 128 is the paper's",
    "cnn13-small": "the same for images of 6 to 15 pixels, with one pool less",
    "mlp": "two hidden layers with dropout, for vectors",
}


def suitable(shape: tuple[int, ...]) -> str:
    """The network that fits inputs of this shape: (D,) or (C, H, W)."""
    if len(shape) == 1:
        return "mlp"
    return "cnn13" if min(shape[1:]) >= 16 else "cnn13-small"


def network(name: str, shape: tuple[int, ...], classes: int, width: int, dropout: float) -> nn.Module:
    """Build a network for inputs of this shape; its initialisation is drawn from the global generator."""
    if name not in NETWORKS:
        raise unknown("network", name, NETWORKS)
    if name == "mlp":
        return MLP(prod(shape), classes, width, dropout)
    if len(shape) != 3:
        raise UsageError(f"Network {name} needs images, but the data are vectors of {shape[0]}: use mlp.")
    small = name == "cnn13-small"
    if min(shape[1:]) < (6 if small else 12):
        least = "mlp" if small else "cnn13-small"
        raise UsageError(f"Images of {shape[1]}×{shape[2]} pixels are too small for {name}: use {least}.")
    return CNN13(shape[0], classes, width, dropout, small)
