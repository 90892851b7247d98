"""Pictures as features of a network that was trained on others: what its trunk, which does not learn, makes of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from certus.config import Config, split_of
from certus.data import Dataset, Part
from certus.data.dataset import brightest
from certus.data.remembered import Remembered
from certus.networks import network
from certus.networks.foreign import Blueprint
from certus.networks.fused import fuse
from certus.networks.pretrained import Pretrained
from certus.networks.weights import pretrained
from certus.randomness import untouched_generator
from certus.training.artefacts import read_tensors
from certus.training.memory import freed_memory_kept

BATCH = 64
SIZE = 224  # pixels that smaller pictures are enlarged to, as in the training of the weights (docs/pictures.md)


@dataclass(frozen=True, eq=False)
class Embedded(Dataset):
    """The roots of the features of a data set's pictures. Training pictures that no run may see have none."""

    known: Tensor = torch.empty(0, dtype=torch.int64)  # noqa: RUF009 (nothing writes to it)

    @cached_property
    def scale(self) -> tuple[Tensor, Tensor]:
        """The mean of each feature, and one deviation for all: angles between pictures stay as they are."""
        seen = self.train.images[self.known]
        mean = seen.mean(0, keepdim=True)
        spread = (seen - mean).square().mean().sqrt()
        return mean, (spread if spread > 0 else torch.tensor(1.0)).expand_as(mean)


class Trunk(nn.Module):
    """From pixels as they are stored to features (n, width). It does not learn."""

    def __init__(
        self, name: str, shape: tuple[int, ...], white: float, weights: str = "", blueprint: Blueprint | None = None
    ) -> None:
        super().__init__()
        with untouched_generator():
            net = network(name, shape, 2, 32, 0.0, blueprint)
        assert isinstance(net, Pretrained)
        if weights:
            net.load_state_dict(pretrained(name, weights, net), strict=False)
        net.adapt(torch.zeros(1), torch.ones(1), white)
        net.enlarge(SIZE)
        self.net, self.width = net.trunk.eval().requires_grad_(False), net.head.in_features

    @cached_property
    def quick(self) -> nn.Module:
        return fuse(self.net) or self.net

    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        parts = [self.quick(part.float()) for part in images.split(BATCH)]
        return torch.cat(parts) if parts else torch.empty(0, self.width)

    @property
    def digest(self) -> str:
        """Of its weights, and of how it adapts pictures to them."""
        found = sha256(repr(self.net).encode())  # with the size that it enlarges pictures to
        for name, tensor in self.net.state_dict().items():
            found.update(name.encode())
            found.update(tensor.contiguous().numpy().data)
        return found.hexdigest()[:16]


def trunk_of(config: Config, data: Dataset) -> Trunk:
    """The trunk of a config's network, for the pictures of this data set."""
    return Trunk(config.network, data.shape, brightest(data.train.images), config.weights)


def saved_trunk(
    path: Path, network: str, shape: tuple[int, ...], remedy: str, blueprint: Blueprint | None = None
) -> Trunk:
    """A trunk that a run has saved, for pictures of this shape."""
    trunk = Trunk(network, shape, 1.0, blueprint=blueprint)
    own = {name: t.shape for name, t in trunk.state_dict().items()}

    def misfit(found: Mapping[str, Tensor]) -> str:
        return "" if {name: t.shape for name, t in found.items()} == own else "it belongs to another network"

    trunk.load_state_dict(read_tensors(path, remedy, misfit))
    return trunk


def file_name(network: str) -> str:
    return re.sub(r"[^A-Za-z0-9-]", "-", network)[-40:]


def remembered_by(trunk: Trunk, config: Config) -> Remembered:
    return Remembered(f"{file_name(config.network)}-{trunk.digest}", trunk.width)


def remembered_features(data: Dataset, config: Config, rows: Tensor, mirror: bool = False) -> Tensor:
    """The features (n, D) of these training pictures, or of their mirror images."""
    trunk = trunk_of(config, data)
    images = data.train.images
    if mirror:
        images, rows = images[rows].flip(-1), torch.arange(len(rows))
    with freed_memory_kept():
        return remembered_by(trunk, config)(images, rows, trunk)


def comparable(features: Tensor) -> Tensor:
    """Features as vectors of length 1 around their mean."""
    x = rooted(features)
    return F.normalize(x - x.mean(0), dim=1)


def rooted(features: Tensor) -> Tensor:
    """±√|x|, which keeps a few large features from deciding."""
    return features.sign() * features.abs().sqrt()


def embedded(data: Dataset, config: Config) -> Embedded:
    """The features of all pictures that a run of this config may see; each is embedded once, also for later runs."""
    trunk, parts = trunk_of(config, data), split_of(config, data)
    remembered = remembered_by(trunk, config)
    known = torch.cat([parts.labelled, parts.unlabelled, parts.validation])
    train = torch.zeros(len(data.train), trunk.width)

    def of(part: Part) -> Part:
        return Part(rooted(remembered(part.images, torch.arange(len(part)), trunk)), part.labels)

    with freed_memory_kept():
        train[known] = rooted(remembered(data.train.images, known, trunk))
        test, validation = of(data.test), of(data.validation) if data.validation else None
    return Embedded(data.name, data.classes, Part(train, data.train.labels), test, validation, known)
