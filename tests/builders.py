"""Small objects that many tests build: configs, runs, steps, networks and folders of pictures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from certus.config import Config
from certus.core.schedules import Clock
from certus.core.step import Batch, Step
from certus.methods import recipe
from certus.networks import NETWORKS
from certus.networks.cnn13 import CNN13
from certus.networks.mlp import MLP
from certus.networks.mobile import EFFICIENTNET_LITE0, Mobile
from certus.networks.weights import keep, kept, learnt
from certus.training.build import build
from certus.training.planning import complete
from certus.training.run import Run
from certus.views import Chain, Views, weak

# Fixed settings, because the presets are tuned from time to time.
SETTINGS = {
    "moons": {"dropout": 0.1, "translate": 0, "noise": 0.3, "learning_rate": 0.02},
    "digits": {"dropout": 0.2, "translate": 0, "noise": 0.5, "learning_rate": 0.2},
}
# small inputs by network
SHAPES = {
    "cnn13": (3, 16, 16),
    "cnn13-small": (1, 8, 8),
    "wrn-28": (3, 8, 8),
    "sprint": (3, 8, 8),
    "mlp": (5,),
    "linear": (5,),
    "efficientnet-lite0": (3, 8, 8),
    "mobilenet-v2": (1, 8, 8),
}


def narrow(name: str, width: int) -> int:
    """This width, or that of a network which has only one."""
    return NETWORKS[name].width if NETWORKS[name].fixed else width


def plain_config(method: str, options: Mapping[str, Any] | None = None, **settings: Any) -> Config:
    """A complete config with the method's default options and no presets, on moons unless `data` says otherwise."""
    given = {"data": "moons", "validation": 0, "threads": 1, **settings}
    chosen = recipe(method).defaults() | dict(options or {})
    return complete(Config(**SETTINGS[given["data"]] | given | {"method": method, "options": chosen}))


def plain_run(method: str, options: Mapping[str, Any] | None = None, trained: int = 0, **settings: Any) -> Run:
    """A run of `plain_config` after this many training steps."""
    run = build(plain_config(method, options, **settings))
    for number in range(trained):
        run.advance(number)
    return run


def step_of(
    images: Tensor,
    labels: Tensor | None = None,
    *,
    number: int = 0,
    steps: int = 100,
    per_epoch: int = 1,
    seed: int = 0,
    views: Views | None = None,
) -> Step:
    """A training step on these images; unlabelled unless labels are given, unchanged unless views are given."""
    labels = torch.full((len(images),), -1) if labels is None else labels
    clock = Clock(number, steps, len(images), per_epoch)
    return Step(Batch(images, labels, torch.arange(len(images))), clock, views or {"weak": Chain()}, seed)


@torch.no_grad()
def outspoken(net: nn.Module) -> nn.Module:
    """The same network with a random head, if its head starts from zero and so says nothing."""
    head = net.head
    assert isinstance(head, nn.Linear)
    if not head.weight.any():
        head.reset_parameters()
    return net


def small_network(name: str, seed: int = 0) -> nn.Module:
    """An "mlp" or a "cnn13" of three classes with dropout, the same for the same seed."""
    torch.manual_seed(seed)
    return MLP(16, 3, width=32, dropout=0.2) if name == "mlp" else small_cnn(seed=seed)


def small_cnn(dropout: float = 0.5, seed: int = 0) -> nn.Module:
    """A CNN-13 of three classes for grey images of 8×8 pixels."""
    torch.manual_seed(seed)
    return CNN13(1, 3, width=4, dropout=dropout, small=True)


def small_step(name: str, seed: int = 0, number: int = 0, count: int = 24) -> Step:
    """A step on noisy random inputs that fit `small_network(name)`."""
    images = normal(count, *{"mlp": (16,), "cnn13": (1, 8, 8)}[name], seed=seed)
    return step_of(images, number=number, seed=seed, views={"weak": weak(noise=0.1)})


class HeadOnly(nn.Module):
    """A network whose features are its inputs."""

    def __init__(self, inputs: int, classes: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout, self.head = nn.Dropout(dropout), nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.dropout(x))


class Stack:
    """Collects every draw."""

    def __init__(self) -> None:
        self.kept: list[Tensor] = []

    def add(self, p: Tensor) -> None:
        self.kept.append(p)

    @property
    def draws(self) -> Tensor:
        return torch.stack(self.kept)  # (T, B, C)


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    """Normally distributed random numbers, the same for the same seed."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def same_state(a: nn.Module | Mapping[str, Tensor], b: nn.Module | Mapping[str, Tensor]) -> bool:
    """Whether two modules or state dicts are equal to the bit."""
    a, b = (dict(x.state_dict()) if isinstance(x, nn.Module) else x for x in (a, b))
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def keep_random_weights(name: str = "efficientnet-lite0") -> None:
    """Random weights take the place of ImageNet's, in $CERTUS_WEIGHTS; so large that no signal is lost on the way."""
    torch.manual_seed(0)
    random = learnt(Mobile(EFFICIENTNET_LITE0, 3, 4, size=32))
    keep(kept(name), {n: 2.4 * t for n, t in random.items()})


def write_pictures(root: Path, *files: str) -> Path:
    """Write a different picture for each name; `a.png=b.png` writes a.png with the pixels of b.png."""
    for file in files:
        name, _, original = file.partition("=")
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        seed = sum(map(ord, original or name)) * 1000 + len(original or name)
        Image.fromarray(np.random.default_rng(seed).integers(0, 256, (12, 10, 3), dtype=np.uint8)).save(path)
    return root
