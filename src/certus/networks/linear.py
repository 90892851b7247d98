"""One linear layer with dropout, for vectors that are features already."""

from __future__ import annotations

from torch import Tensor, nn


class Linear(nn.Module):
    def __init__(self, inputs: int, classes: int, width: int = 0, dropout: float = 0.2) -> None:  # noqa: ARG002
        super().__init__()
        self.trunk = nn.Sequential(nn.Flatten(), nn.Dropout(dropout))
        self.head = nn.Linear(inputs, classes)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def features(self, vectors: Tensor) -> Tensor:
        return self.trunk(vectors)  # (B, D)

    def forward(self, vectors: Tensor) -> Tensor:
        return self.head(self.features(vectors))  # (B, C)
