"""Sprint: a network that learns most in the first minutes, for machines without a GPU.

    whitening 2×2 (fixed, from the images)   GELU
    3 × [ 3×3 conv   pool   norm   GELU   3×3 conv   norm   GELU ]      w/4, w, w channels
    dropout before the last block and before the head
    maximum over the pixels   linear without bias, divided by w

Most of its work is in dense matrices at a low resolution. Convolutions start as the identity, and batch norms have no
scale, so that an orthogonal update (Muon) moves every layer from the first step on. After Jordan 2024 (airbench).
"""

from __future__ import annotations

from math import sqrt

import torch
from torch import Tensor, nn
from torch.nn import functional as F

SMALLEST = 3  # pixels that a pooled picture keeps at least
COMPONENTS = 24  # of the patches, at most


class Whitening(nn.Module):
    """The largest principal components of the pictures' patches at equal variance, each with both signs.

    w_j = v_j / √(λ_j + ε) with the eigenvectors v and eigenvalues λ of the patches' second moments. The weights are
    not learnt: `prepare` computes them once, and they are saved like any other.
    """

    weight: Tensor

    def __init__(self, channels: int, kernel: int = 2, stride: int = 1) -> None:
        super().__init__()
        size = channels * kernel * kernel
        kept = min(size, COMPONENTS)
        self.size, self.stride, self.outputs = size, stride, 2 * kept
        identity = torch.eye(size)[:kept].view(kept, channels, kernel, kernel)
        self.register_buffer("weight", torch.cat([identity, -identity]))
        self.bias = nn.Parameter(torch.zeros(self.outputs))

    @torch.no_grad()
    def prepare(self, images: Tensor, epsilon: float = 5e-4) -> None:
        """Compute the weights from normalised images (N, C, H, W)."""
        moments, count = torch.zeros(self.size, self.size, dtype=torch.float64, device=images.device), 0
        for part in images.split(100):  # all patches at once would need half a gigabyte
            kernel = (self.weight.shape[2], self.weight.shape[3])
            patches = F.unfold(part.double(), kernel, stride=self.stride).transpose(1, 2).flatten(0, 1)
            moments, count = moments + patches.T @ patches, count + len(patches)
        values, vectors = torch.linalg.eigh(moments / count)
        signs = torch.where(vectors.sum(0) < 0, -1.0, 1.0)  # an eigenvector has no sign of its own
        scaled = (vectors * signs / (values.clamp(min=0) + epsilon).sqrt()).flip(1).T
        filters = scaled[: self.outputs // 2].reshape(-1, *self.weight.shape[1:])
        self.weight.copy_(torch.cat([filters, -filters]))

    def forward(self, images: Tensor) -> Tensor:
        return F.conv2d(images, self.weight, self.bias, self.stride)


class ScaledLinear(nn.Linear):
    """A linear layer without bias whose answers are divided by the number of its inputs."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, bias=False)
        nn.init.normal_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight) / self.in_features


class MaxOverPixels(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.amax((2, 3))


def convolution(inputs: int, outputs: int) -> nn.Conv2d:
    """3×3, starting as the identity on the channels that it has."""
    layer = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
    nn.init.normal_(layer.weight, std=1 / sqrt(9 * inputs))
    nn.init.dirac_(layer.weight.data[: min(inputs, outputs)])
    return layer


def norm(channels: int) -> nn.BatchNorm2d:
    """Batch norm with a shift and no scale; its statistics follow quickly."""
    layer = nn.BatchNorm2d(channels, momentum=0.4)
    del layer.weight
    layer.register_buffer("weight", torch.ones(channels))
    return layer


def block(inputs: int, outputs: int, pool: bool) -> list[nn.Module]:
    return [
        *(convolution(inputs, outputs), nn.MaxPool2d(2) if pool else nn.Identity(), norm(outputs), nn.GELU()),
        *(convolution(outputs, outputs), norm(outputs), nn.GELU()),
    ]


class Sprint(nn.Module):
    def __init__(self, channels: int, classes: int, width: int = 128, dropout: float = 0.1, size: int = 32) -> None:
        super().__init__()
        stride = max(1, size // 32)  # larger pictures are read in steps, so that the work stays the same
        whitening = Whitening(channels, kernel=2 * stride if stride > 1 else 2, stride=stride)
        side, layers, inputs = (size - whitening.weight.shape[2]) // stride + 1, [], whitening.outputs
        for outputs in (max(1, width // 4), width, width):
            pool = side // 2 >= SMALLEST
            layers.append(block(inputs, outputs, pool))
            side, inputs = side // 2 if pool else side, outputs
        first, second, last = layers
        self.trunk = nn.Sequential(
            *(whitening, nn.GELU(), *first, *second),
            *(nn.Dropout(dropout), *last),
            *(MaxOverPixels(), nn.Dropout(dropout)),
        )
        self.head = ScaledLinear(width, classes)

    def prepare(self, images: Tensor) -> None:
        """Set the first layer from normalised training images."""
        whitening = self.trunk[0]
        assert isinstance(whitening, Whitening)
        whitening.prepare(images)

    def features(self, images: Tensor) -> Tensor:
        return self.trunk(images)  # (B, w)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.features(images))  # (B, C)
