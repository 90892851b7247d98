"""MobileNetV2 and EfficientNet-Lite: networks of inverted residuals, for weights that were learnt on other pictures.

    adapt (pixels, size and colours as the weights know them)
    3×3 conv, 32, stride 2
    17 or 16 × [ 1×1 conv, wider   3×3 or 5×5 conv per channel   1×1 conv, narrow ], added to their input where they fit
    1×1 conv, 1280   mean over the pixels   dropout   linear

After Sandler et al. 2018 and Tan & Le 2019; ReLU6 after every convolution but the narrow ones. EfficientNet-Lite pads
as TensorFlow does: at stride 2 more on the right and below. Batch norms are folded into the convolutions: their
statistics stay those that came with the weights, because those of a few pictures are worse, and a step is quicker.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from certus.errors import UsageError

FEATURES = 1280
LAST = 5  # blocks: those at the lowest resolution
SMALLEST = 160  # pixels; smaller pictures are enlarged, because the weights know no objects so small


class Group(NamedTuple):
    """Blocks in a row, the first of which may have a stride."""

    wider: int
    channels: int
    blocks: int
    stride: int
    kernel: int = 3


@dataclass(frozen=True)
class Plan:
    groups: tuple[Group, ...]
    centre: tuple[float, float, float]  # of pixels from 0 to 255, as the weights know them
    spread: tuple[float, float, float]
    epsilon: float  # of the batch norms
    uneven: bool  # padding as in TensorFlow


MOBILENET_V2 = Plan(
    groups=(
        *(Group(1, 16, 1, 1), Group(6, 24, 2, 2), Group(6, 32, 3, 2), Group(6, 64, 4, 2), Group(6, 96, 3, 1)),
        *(Group(6, 160, 3, 2), Group(6, 320, 1, 1)),
    ),
    centre=(123.675, 116.28, 103.53),
    spread=(58.395, 57.12, 57.375),
    epsilon=1e-5,
    uneven=False,
)
EFFICIENTNET_LITE0 = Plan(
    groups=(
        *(Group(1, 16, 1, 1), Group(6, 24, 2, 2), Group(6, 40, 2, 2, 5), Group(6, 80, 3, 2), Group(6, 112, 3, 1, 5)),
        *(Group(6, 192, 4, 2, 5), Group(6, 320, 1, 1)),
    ),
    centre=(127.0, 127.0, 127.0),
    spread=(128.0, 128.0, 128.0),
    epsilon=1e-3,
    uneven=True,
)


class Adapt(nn.Module):
    """From the normalised images of a data set to what the weights know: three colours, their size, their scale."""

    factor: Tensor
    offset: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.register_buffer("factor", torch.ones(1, 3, 1, 1))
        self.register_buffer("offset", torch.zeros(1, 3, 1, 1))

    def extra_repr(self) -> str:
        return f"{self.size} pixels"

    def forward(self, x: Tensor) -> Tensor:
        x = x * self.factor + self.offset  # grey becomes three colours
        if min(x.shape[2:]) == self.size:
            return x
        return F.interpolate(x, scale_factor=self.size / min(x.shape[2:]), mode="bilinear", antialias=False)


class PadUneven(nn.Module):
    """So many pixels that a convolution of stride 2 gives ⌈side / 2⌉; an odd one is added on the right and below."""

    def __init__(self, kernel: int) -> None:
        super().__init__()
        self.kernel = kernel

    def forward(self, x: Tensor) -> Tensor:
        height, width = (self.kernel - (2 if side % 2 == 0 else 1) for side in x.shape[2:])
        return F.pad(x, (width // 2, width - width // 2, height // 2, height - height // 2))


class InvertedResidual(nn.Module):
    """x + f(x), or f(x) where the shape changes."""

    def __init__(self, inputs: int, group: Group, stride: int, plan: Plan) -> None:
        super().__init__()
        inner = inputs * group.wider
        self.added = stride == 1 and inputs == group.channels
        self.path = nn.Sequential(
            *(convolution(inputs, inner, 1, 1, plan) if group.wider > 1 else []),
            *convolution(inner, inner, group.kernel, stride, plan, groups=inner),
            *convolution(inner, group.channels, 1, 1, plan)[:-1],
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.path(x)
        return x + y if self.added else y


def convolution(inputs: int, outputs: int, kernel: int, stride: int, plan: Plan, groups: int = 1) -> list[nn.Module]:
    """Convolution with the norm in it, activation."""
    uneven = plan.uneven and stride == 2
    return [
        *([PadUneven(kernel)] if uneven else []),
        nn.Conv2d(inputs, outputs, kernel, stride, 0 if uneven else kernel // 2, groups=groups),
        nn.ReLU6(),
    ]


class MeanOverPixels(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mean((2, 3))


class Mobile(nn.Module):
    """Pictures of `size` pixels; smaller ones than the weights can read are enlarged."""

    def __init__(
        self,
        plan: Plan,
        channels: int,  # noqa: ARG002 (grey becomes three colours)
        classes: int,
        width: int = 32,
        dropout: float = 0.2,
        size: int = 128,
    ) -> None:
        super().__init__()
        if width != 32:
            raise UsageError(f"This network has a fixed width of 32, but `width` is {width}: leave it out.")
        self.plan = plan
        inputs, layers = 32, convolution(3, 32, 3, 2, plan)
        for group in plan.groups:
            for i in range(group.blocks):
                layers.append(InvertedResidual(inputs, group, group.stride if i == 0 else 1, plan))
                inputs = group.channels
        layers += convolution(inputs, FEATURES, 1, 1, plan)
        self.trunk = nn.Sequential(Adapt(max(size, SMALLEST)), *layers, MeanOverPixels(), nn.Dropout(dropout))
        self.head = nn.Linear(FEATURES, classes)
        nn.init.zeros_(self.head.weight)  # what it has not learnt it does not say
        nn.init.zeros_(self.head.bias)

    @torch.no_grad()
    def adapt(self, mean: Tensor, std: Tensor, brightest: float) -> None:
        """Tell it how images are normalised: (x − mean) / std of values from 0 to `brightest`."""
        adapt = self.trunk[0]
        assert isinstance(adapt, Adapt)
        centre, spread = (torch.tensor(v).view(1, 3, 1, 1) for v in (self.plan.centre, self.plan.spread))
        adapt.factor.copy_(std.view(1, -1, 1, 1) * (255 / brightest) / spread)
        adapt.offset.copy_((mean.view(1, -1, 1, 1) * (255 / brightest) - centre) / spread)

    def enlarge(self, size: int) -> None:
        """Pictures that are smaller, to this many pixels."""
        adapt = self.trunk[0]
        assert isinstance(adapt, Adapt)
        adapt.size = max(adapt.size, size)

    def freeze(self, depth: str) -> None:
        """With `last` only the last blocks and the head learn: most of the weights, in a fraction of the time."""
        blocks = [layer for layer in self.trunk if isinstance(layer, InvertedResidual)]
        for layer in list(self.trunk)[: list(self.trunk).index(blocks[-LAST])] if depth == "last" else []:
            layer.requires_grad_(False)

    def features(self, images: Tensor) -> Tensor:
        return self.trunk(images)  # (B, 1280)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.features(images))  # (B, C)
