"""A small network that is quick on a few cores: five convolutions, the first pool right after the first of them.

3×3, w  pool    2 × [3×3, 2w]  pool  dropout    2 × [3×3, 4w]  dropout    average pool   linear
"""

from __future__ import annotations

from torch import Tensor, nn

from certus.models.cnn13 import layer


class Quick(nn.Module):
    def __init__(self, channels: int, classes: int, width: int = 32, dropout: float = 0.3) -> None:
        super().__init__()
        w = width
        self.trunk = nn.Sequential(
            *(layer(channels, w), nn.MaxPool2d(2)),
            *(layer(w, 2 * w), layer(2 * w, 2 * w), nn.MaxPool2d(2), nn.Dropout(dropout)),
            *(layer(2 * w, 4 * w), layer(4 * w, 4 * w), nn.Dropout(dropout)),
            *(nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        )
        self.head = nn.Linear(4 * w, classes)

    def features(self, images: Tensor) -> Tensor:
        return self.trunk(images)  # (B, 4w)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.features(images))  # (B, C)
