"""Networks by name. Each maps a batch of images (or vectors) to logits, and has `features` and a `head`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

from torch import nn

from certus.errors import UsageError, unknown
from certus.networks.cnn13 import CNN13
from certus.networks.foreign import Blueprint
from certus.networks.linear import Linear
from certus.networks.mlp import MLP
from certus.networks.mobile import EFFICIENTNET_LITE0, MOBILENET_V2, Mobile
from certus.networks.outside import Outside, describe, is_outside
from certus.networks.sprint import Sprint
from certus.networks.wrn import WRN


@dataclass(frozen=True)
class Architecture:
    """A network that certus can build by name."""

    about: str
    build: Callable[..., nn.Module]  # (channels or inputs, classes, width, dropout)
    width: int  # with a GPU
    cpu_width: int  # without a GPU
    smallest: int = 0  # least length of the shorter side, in pixels; 0: the network takes vectors
    alternative: str = ""  # network for smaller images
    sized: bool = False  # whether `build` also takes the size of the images
    fixed: bool = False  # one width, for which there are weights


NETWORKS = {
    "cnn13": Architecture(
        "13 layers; width 128 is the paper's, 16 is quick on a few cores", CNN13, 128, 16, 12, "cnn13-small"
    ),
    "cnn13-small": Architecture(
        "cnn13 with one pooling layer less, for images under 16 pixels", partial(CNN13, small=True), 32, 16, 6, "mlp"
    ),
    "wrn-28": Architecture("wide residual network of 28 layers; width 32 is WRN-28-2", WRN, 32, 32, 8, "cnn13-small"),
    "sprint": Architecture(
        "a few wide layers at a low resolution, for the first minutes without a GPU", Sprint, 128, 128, 6, "mlp", True
    ),
    "efficientnet-lite0": Architecture(
        "16 blocks with ImageNet weights; enlarges pictures to 160 pixels",
        partial(Mobile, EFFICIENTNET_LITE0),
        32,
        32,
        6,
        "mlp",
        True,
        True,
    ),
    "mobilenet-v2": Architecture(
        "17 blocks with ImageNet weights; enlarges pictures to 160 pixels",
        partial(Mobile, MOBILENET_V2),
        32,
        32,
        6,
        "mlp",
        True,
        True,
    ),
    "linear": Architecture("one layer with dropout, for vectors that are features already", Linear, 32, 32),
    "mlp": Architecture("two hidden layers with dropout, for vectors", MLP, 64, 64),
}


def architecture(name: str) -> Architecture:
    """Of a name in the table above, or of a model of another package."""
    if is_outside(name):
        return Architecture("a model of another package", partial(of_package, name), 32, 32, 1, "mlp", True, True)
    if name not in NETWORKS:
        raise unknown("network", name, NETWORKS)
    return NETWORKS[name]


def of_package(name: str, *arguments: Any, blueprint: Blueprint | None = None, **more: Any) -> Outside:
    return Outside(blueprint or describe(name), *arguments, **more)


def has_weights(name: str) -> bool:
    """Whether there are weights for it that were learnt on other pictures."""
    return is_outside(name) or (name in NETWORKS and NETWORKS[name].fixed)


def suitable(shape: tuple[int, ...]) -> str:
    """The network that fits inputs of this shape, (D,) or (C, H, W)."""
    if len(shape) == 1:
        return "mlp"
    return "cnn13" if min(shape[1:]) >= 16 else "cnn13-small"


def suitable_width(name: str, accelerated: bool) -> int:
    """The usual width with a GPU; without one, the width that was best after equal time (docs/performance.md)."""
    found = architecture(name)
    return found.width if accelerated else found.cpu_width


def network(
    name: str, shape: tuple[int, ...], classes: int, width: int, dropout: float, blueprint: Blueprint | None = None
) -> nn.Module:
    """Build a network for inputs of this shape; its initialisation is drawn from the global generator.

    `blueprint`: of a model of another package, which is asked for it if it is not given.
    """
    found = architecture(name)
    if not found.smallest:
        return found.build(prod(shape), classes, width, dropout)
    if len(shape) != 3:
        raise UsageError(
            f"Network {name} needs images, but the data are vectors of {shape[0]} numbers: use `network` mlp."
        )
    if min(shape[1:]) < found.smallest:
        raise UsageError(
            f"Images of {shape[1]}×{shape[2]} pixels are too small for network {name}: use `network` "
            f"{found.alternative}."
        )
    more: dict[str, Any] = {"size": min(shape[1:])} if found.sized else {}
    more |= {"blueprint": blueprint} if blueprint else {}
    return found.build(shape[0], classes, width, dropout, **more)
