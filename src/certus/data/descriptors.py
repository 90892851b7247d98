"""A quick look at labelled pictures without a network: gradients and colours, and a linear model of them."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

SIDE, CELLS, ORIENTATIONS, COLOURS = 32, 8, 8, 4  # pixels and cells per side, directions, patches of colour per side
SLICE = 256  # images at a time
PENALTY = 0.1  # of the linear model, per training image


def describe(images: Tensor, index: Tensor, mirror: bool = False) -> Tensor:
    """(n, D) of the images with these indices, or of their mirror images: how strong the edges of each direction are
    in each cell, and the colours of coarse patches."""
    parts = (images[part] for part in index.split(SLICE))
    return torch.cat([described(part.flip(-1) if mirror else part) for part in parts])


def described(images: Tensor) -> Tensor:
    x = F.interpolate(images.float(), (SIDE, SIDE), mode="bilinear", antialias=True, align_corners=False)
    x = x / x.abs().amax().clamp(min=1e-6)
    brightness = F.pad(x.mean(1, keepdim=True), (1, 1, 1, 1), mode="replicate")
    across = brightness[:, 0, 1:-1, 2:] - brightness[:, 0, 1:-1, :-2]
    down = brightness[:, 0, 2:, 1:-1] - brightness[:, 0, :-2, 1:-1]
    length, at = torch.hypot(across, down), torch.atan2(down, across) * (ORIENTATIONS / torch.pi)
    bins = torch.arange(ORIENTATIONS, device=x.device).view(1, -1, 1, 1)
    apart = (at[:, None] - bins) % ORIENTATIONS
    votes = (1 - torch.minimum(apart, ORIENTATIONS - apart)).clamp(min=0) * length[:, None]  # (N, O, H, W)
    edges = F.adaptive_avg_pool2d(votes, CELLS).flatten(1)
    colours = F.adaptive_avg_pool2d(x, COLOURS).flatten(1)
    return torch.cat([F.normalize(edges.sqrt(), dim=1), F.normalize(colours - colours.mean(1, keepdim=True), dim=1)], 1)


def in_folds(labels: Tensor, folds: int) -> Tensor:
    """(N,) the fold of each image, 0 … folds − 1. The images of a class are dealt out in turn."""
    order = labels.argsort(stable=True)
    fold = torch.empty_like(labels)
    fold[order] = torch.arange(len(labels)) % folds
    return fold


def held_out_answers(seen: Tensor, labels: Tensor, asked: tuple[Tensor, ...], folds: int = 5) -> list[Tensor]:
    """For each set of descriptors (N, D) the answers (N,), row by row of a linear model that was fitted on the
    descriptors `seen` of the other folds."""
    fold, answers = in_folds(labels, folds), [torch.empty_like(labels) for _ in asked]
    x, y = with_one(seen), F.one_hot(labels).double()
    squares = [x[fold == k].T @ x[fold == k] for k in range(folds)]
    products = [x[fold == k].T @ y[fold == k] for k in range(folds)]
    penalty = PENALTY * torch.eye(x.shape[1], dtype=torch.float64)
    for k in range(folds):
        others = [i for i in range(folds) if i != k]
        matrix = sum((squares[i] for i in others), penalty)
        weights = torch.linalg.solve(matrix, sum((products[i] for i in others), torch.zeros_like(products[k])))
        for answer, given in zip(answers, asked, strict=True):
            answer[fold == k] = (with_one(given[fold == k]) @ weights).argmax(1)
    return answers


def with_one(x: Tensor) -> Tensor:
    return torch.cat([x, x.new_ones(len(x), 1)], 1).double()
