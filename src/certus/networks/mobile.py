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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor, nn
from torch.nn import functional as F

from certus.errors import UsageError
from certus.networks.pretrained import Adapt, Pretrained, learnt, readable
from certus.networks.weights import imagenet

FEATURES = 1280


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


class Mobile(Pretrained):
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
        if width != 32:
            raise UsageError(f"This network has a fixed width of 32, but `width` is {width}: leave it out.")
        inputs, layers = 32, convolution(3, 32, 3, 2, plan)
        for group in plan.groups:
            for i in range(group.blocks):
                layers.append(InvertedResidual(inputs, group, group.stride if i == 0 else 1, plan))
                inputs = group.channels
        layers += [*convolution(inputs, FEATURES, 1, 1, plan), MeanOverPixels()]
        super().__init__(Adapt(plan.centre, plan.spread, readable(size)), layers, FEATURES, classes, dropout)
        self.plan = plan

    def named(self, found: Mapping[str, Tensor]) -> dict[str, Tensor] | None:
        """By their own names if they have those of this network, else by their order.

        Networks of the same layers define them in the same order: each convolution, then the scale, shift, mean and
        variance of its batch norm; at last the head. The norms are folded into the convolutions.
        """
        own = learnt(self)
        if set(own) <= set(found):
            return {name: found[name] for name in own}
        tensors = [t for t in found.values() if t.ndim]  # without the norms' counters
        *convolutions, head = [tensors[i : i + 5] for i in range(0, len(tensors), 5)] or [[]]
        shapes = [w.shape[:1] for w, *_ in convolutions for _ in range(4)]
        fits = len(own) == 2 * len(convolutions) + 2 == 2 * len(convolutions) + len(head)
        if not fits or shapes != [t.shape for _, *norm in convolutions for t in norm]:
            return None
        weights = [t for w, *norm in convolutions for t in folded(w, norm, self.plan.epsilon)]
        return dict(zip(own, [*weights, *head], strict=True))

    def published(self, name: str) -> dict[str, Tensor]:
        return imagenet(name, self)


def folded(weight: Tensor, norm: Sequence[Tensor], epsilon: float) -> tuple[Tensor, Tensor]:
    """s(Wx − μ) + β = (sW)x + (β − sμ) with s = γ / √(σ² + ε)."""
    scale, shift, mean, variance = norm
    s = scale / (variance + epsilon).sqrt()
    return weight * s.view(-1, *[1] * (weight.ndim - 1)), shift - mean * s
