"""Wide residual network WRN-28-2 in the form that the semi-supervised literature uses, with dropout for certainty.

    3×3, 16    4 blocks of w    4 blocks of 2w, half size    4 blocks of 4w, half size    BN   average pool   linear

A block is BN, LeakyReLU, 3×3, BN, LeakyReLU, dropout, 3×3, plus the shortcut around it (1×1 where the width changes).
"""

from __future__ import annotations

from torch import Tensor, nn


class Block(nn.Module):
    """A residual block."""

    def __init__(self, inputs: int, outputs: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.before = nn.Sequential(nn.BatchNorm2d(inputs), nn.LeakyReLU(0.1, inplace=True))
        self.through = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.LeakyReLU(0.1, inplace=True),
            nn.Dropout(dropout),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
        )
        self.around = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if inputs != outputs or stride > 1 else None

    def forward(self, x: Tensor) -> Tensor:
        ready = self.before(x)
        return self.through(ready) + (x if self.around is None else self.around(ready))


class WRN(nn.Module):
    """`width` is the width of the first group: 32 is WRN-28-2."""

    def __init__(self, channels: int, classes: int, width: int = 32, dropout: float = 0.3, depth: int = 28) -> None:
        super().__init__()
        blocks = (depth - 4) // 6
        stages: list[nn.Module] = [nn.Conv2d(channels, 16, 3, padding=1, bias=False)]
        inputs = 16
        for outputs, stride in ((width, 1), (2 * width, 2), (4 * width, 2)):
            for i in range(blocks):
                stages.append(Block(inputs, outputs, stride if i == 0 else 1, dropout))
                inputs = outputs
        self.trunk = nn.Sequential(
            *stages,
            *(nn.BatchNorm2d(inputs), nn.LeakyReLU(0.1, inplace=True)),
            *(nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        )
        self.head = nn.Linear(inputs, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", a=0.1)

    def features(self, images: Tensor) -> Tensor:
        return self.trunk(images)  # (B, 4w)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.features(images))  # (B, C)
