"""The 13-layer network of the consistency papers (CNN-13), in the paper's form: batch norm, no weight norm.

    3 × [3×3, w]   pool  dropout
    3 × [3×3, 2w]  pool  dropout
    3×3, 4w (no padding)   1×1, 2w   1×1, w   average pool   linear

w = 128 is the paper's. `small`, for images under 16 pixels, leaves out the second pool: the layer without padding needs
at least 3×3 inputs.
"""

from __future__ import annotations

from torch import Tensor, nn


def layer(inputs: int, outputs: int, kernel: int = 3, padding: int = 1) -> nn.Sequential:
    """Convolution, batch norm, LeakyReLU."""
    convolution = nn.Conv2d(inputs, outputs, kernel, padding=padding, bias=False)
    nn.init.kaiming_normal_(convolution.weight, a=0.1)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.LeakyReLU(0.1, inplace=True))


class CNN13(nn.Module):
    """`width` is w above."""

    def __init__(self, channels: int, classes: int, width: int = 128, dropout: float = 0.5, small: bool = False):
        super().__init__()
        w = width
        self.trunk = nn.Sequential(
            *(layer(channels, w), layer(w, w), layer(w, w)),
            *(nn.MaxPool2d(2), nn.Dropout(dropout)),
            *(layer(w, 2 * w), layer(2 * w, 2 * w), layer(2 * w, 2 * w)),
            *(nn.Identity() if small else nn.MaxPool2d(2), nn.Dropout(dropout)),
            *(layer(2 * w, 4 * w, 3, padding=0), layer(4 * w, 2 * w, 1, padding=0), layer(2 * w, w, 1, padding=0)),
            *(nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        )
        self.head = nn.Linear(w, classes)

    def features(self, images: Tensor) -> Tensor:
        return self.trunk(images)  # (B, w)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.features(images))  # (B, C)
