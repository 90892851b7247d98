"""What logistic regression on the labels alone answers, and how far to believe it.

Labels that travel over a graph win where labels are few, and logistic regression where they are many. The product of
both answers is a product of experts (Hinton 2002), in which the weight of the regression grows with the labels.
"""

from __future__ import annotations

import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor
from torch.nn import functional as F

from certus.teachers.diffusion import shares

STRENGTH = 128.0  # C for vectors of length 1; a tenth of it or ten times as much changes little
FLOOR = 1e-6  # the least probability: no expert forbids a class


def regressed(x: Tensor, labels: Tensor, classes: int) -> Tensor:
    """q (N, C): the probabilities that logistic regression on the labelled vectors gives to all; −1 is unlabelled."""
    vectors, known = x.float().cpu().numpy(), (labels >= 0).numpy()
    q = torch.zeros(len(x), classes, dtype=torch.float64)
    there = labels[labels >= 0].unique()
    if len(there) < 2:  # nothing to tell apart
        q[:, there] = 1.0
        return q
    strength = STRENGTH / max(float(x.float().square().sum(1).mean()), 1e-12)
    model = LogisticRegression(C=strength, max_iter=1000).fit(vectors[known], labels.numpy()[known])
    q[:, there] = torch.from_numpy(model.predict_proba(vectors)).double()
    return q


def belief(labels: Tensor, classes: int, rate: float) -> float:
    """β = ρn/(1 + ρn), where n is the mean number of labels per class."""
    n = int((labels >= 0).sum()) / classes
    return rate * n / (1 + rate * n)


def joined(z: Tensor, q: Tensor, beta: float) -> Tensor:
    """ẑ q^β (N, C), as probabilities; where no label has arrived, q^β alone."""
    return (shares(z).clamp(min=FLOOR).log() + beta * q.clamp(min=FLOOR).log()).softmax(1)


def softened(p: Tensor, guess: Tensor, weight: Tensor, beta: float) -> tuple[Tensor, Tensor]:
    """(1 − β) w · (1 for the guess, 0 for the others) + β p, as probabilities (N, C) and their weight (N,).

    The layer can learn many hard labels by heart, so the more labels there are, the more it learns of the doubts.
    """
    hard = F.one_hot(guess, p.shape[1]).to(p)
    both = (1 - beta) * weight[:, None].to(p) * hard + beta * p
    total = both.sum(1)
    return torch.where(total[:, None] > 0, both / total[:, None].clamp(min=1e-12), hard), total
