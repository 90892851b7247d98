"""What networks with weights that were learnt on other pictures have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

SMALLEST = 160  # pixels; smaller pictures are enlarged, because the weights know no objects so small
LAST = 3  # the last third of the layers learns with `depth` last
ADAPT = "trunk.0."


def readable(size: int) -> int:
    """The size that pictures of so many pixels have for the weights."""
    return max(size, SMALLEST)


class Adapt(nn.Module):
    """From the normalised images of a data set to what the weights know: three colours, their size, their scale."""

    factor: Tensor
    offset: Tensor

    def __init__(self, centre: Sequence[float], spread: Sequence[float], size: int) -> None:
        super().__init__()
        self.centre, self.spread = tuple(centre), tuple(spread)  # of pixels from 0 to 255, as the weights know them
        self.size = size  # of the shorter side
        self.register_buffer("factor", torch.ones(1, 3, 1, 1))
        self.register_buffer("offset", torch.zeros(1, 3, 1, 1))

    def extra_repr(self) -> str:
        return f"{self.size} pixels"

    def enlarge(self, size: int) -> None:
        """Smaller pictures, to this many pixels."""
        self.size = max(self.size, size)

    def forward(self, x: Tensor) -> Tensor:
        return self.resized(x * self.factor + self.offset)  # grey becomes three colours

    def resized(self, x: Tensor) -> Tensor:
        if min(x.shape[2:]) == self.size:
            return x
        return F.interpolate(x, scale_factor=self.size / min(x.shape[2:]), mode="bilinear", antialias=False)

    @torch.no_grad()
    def rescale(self, mean: Tensor, std: Tensor, brightest: float) -> None:
        centre, spread = (torch.tensor(v).view(1, 3, 1, 1) for v in (self.centre, self.spread))
        self.factor.copy_(std.view(1, -1, 1, 1) * (255 / brightest) / spread)
        self.offset.copy_((mean.view(1, -1, 1, 1) * (255 / brightest) - centre) / spread)


class Pretrained(nn.Module):
    """A trunk (adapt, layers, dropout) and a linear head. The weights of the layers come from elsewhere."""

    def __init__(self, adapt: Adapt, layers: Sequence[nn.Module], features: int, classes: int, dropout: float) -> None:
        super().__init__()
        self.trunk = nn.Sequential(adapt, *layers, nn.Dropout(dropout))
        self.head = nn.Linear(features, classes)
        nn.init.zeros_(self.head.weight)  # what it has not learnt it does not say
        nn.init.zeros_(self.head.bias)

    def features(self, images: Tensor) -> Tensor:
        return self.trunk(images)  # (B, D)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.features(images))  # (B, C)

    def adapt(self, mean: Tensor, std: Tensor, brightest: float) -> None:
        """Tell it how images are normalised: (x − mean) / std of values from 0 to `brightest`."""
        self.first.rescale(mean, std, brightest)

    def enlarge(self, size: int) -> None:
        """Pictures that are smaller, to this many pixels, if the weights can read them."""
        self.first.enlarge(size)

    @property
    def first(self) -> Adapt:
        adapt = self.trunk[0]
        assert isinstance(adapt, Adapt)
        return adapt

    def freeze(self, depth: str) -> None:
        """With `last` only the last third of the layers and the head learn, in about half the time."""
        layers = [m for m in self.trunk.modules() if not list(m.children()) and list(m.parameters())]
        for layer in layers[: len(layers) - len(layers) // LAST] if depth == "last" else []:
            layer.requires_grad_(False)

    def named(self, found: Mapping[str, Tensor]) -> dict[str, Tensor] | None:
        """Weights from elsewhere by the names of this network; None if they are of another network."""
        raise NotImplementedError

    def published(self, name: str) -> dict[str, Tensor]:
        """The weights of the network of this name that its authors have published, by the names of this network."""
        raise NotImplementedError


def learnt(net: Pretrained) -> dict[str, Tensor]:
    """What weights are about: not how the images of a data set are adapted to them."""
    return {name: t for name, t in net.state_dict().items() if not name.startswith(ADAPT)}
