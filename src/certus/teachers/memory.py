"""A memory of the classes: the features of their labelled images (keys) and the network's answers (values)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from certus.core.step import Step
from certus.networks.references import refer
from certus.networks.roles import feature_size, role


def updated(old: Tensor, seen: Tensor, labels: Tensor, rate: float) -> Tensor:
    """m_c − η Σ_{y_i = c} (m_c − s_i) / (1 + n_c), for keys and values alike."""
    member = F.one_hot(labels, len(old)).to(old.dtype)  # (B, C)
    n = member.sum(0)[:, None]  # (C, 1)
    return old - rate * (n * old - member.T @ seen) / (1 + n)


def attend(features: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """p̂ = Σ_c m_c v_c, m = softmax_c(−‖f − k_c‖₁): (B, C), with gradient into the features."""
    attention = (-torch.cdist(features, keys, p=1.0)).softmax(1)
    return attention @ values


class ClassMemory(nn.Module):
    """Keys (C, D) and values (C, C), updated from the labelled images of every step."""

    student: nn.Module

    def __init__(self, student: nn.Module, view: str, classes: int, rate: float = 0.5) -> None:
        super().__init__()
        self.view, self.rate = view, rate
        self.register_buffer("keys", torch.zeros(classes, feature_size(student)))
        self.register_buffer("values", torch.full((classes, classes), 1.0 / classes))
        self.keys: Tensor
        self.values: Tensor
        refer(self, student=student)

    def forward(self, step: Step) -> Tensor:
        """p̂ (B, C): the memory's answer to each image; for a labelled one, the value of its class."""
        labels = step.batch.labels
        attended = attend(step.features(self.student, self.view), self.keys, self.values)
        return torch.where((labels >= 0)[:, None], self.values[labels.clamp(min=0)], attended)

    @torch.no_grad()
    def follow(self, step: Step) -> None:
        known = step.batch.labels >= 0
        labels = step.batch.labels[known]
        answers = step.learn(self.student, self.view).softmax(1)[known]
        self.keys.copy_(updated(self.keys, step.features(self.student, self.view)[known], labels, self.rate))
        values = updated(self.values, answers, labels, self.rate)
        self.values.copy_(values / values.sum(1, keepdim=True))

    def __repr__(self) -> str:
        return f"memory of {role(self.student)}({self.view})'s labelled features, η = {self.rate:g}"
