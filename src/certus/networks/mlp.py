"""A multilayer perceptron with dropout, for vectors."""

from __future__ import annotations

from torch import Tensor, nn


class MLP(nn.Module):
    def __init__(self, inputs: int, classes: int, width: int = 64, dropout: float = 0.2):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Flatten(),
            *(nn.Linear(inputs, width), nn.ReLU(), nn.Dropout(dropout)),
            *(nn.Linear(width, width), nn.ReLU(), nn.Dropout(dropout)),
        )
        self.head = nn.Linear(width, classes)

    def features(self, vectors: Tensor) -> Tensor:
        return self.trunk(vectors)  # (B, w)

    def forward(self, vectors: Tensor) -> Tensor:
        return self.head(self.features(vectors))  # (B, C)
