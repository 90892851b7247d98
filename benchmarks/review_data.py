"""The data of benchmarks/review.py: frozen features of pictures whose labels are known, computed once and kept.

CIFAR-10: features of efficientnet-lite0 with ImageNet weights, pictures enlarged to 160 pixels. SVHN and Fashion-MNIST:
HOG. Then principal components of the training pictures (no label is read), scaled to a mean square of 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hog import hog
from numpy.typing import NDArray

from certus.data import load
from certus.randomness import generator
from certus.training.embedding import Trunk, rooted

POOL, TEST = 10_000, 5_000  # pictures that can be labelled, and test pictures
COMPONENTS = 128
SETS = ("svhn", "cifar10", "fashion-mnist")
Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Frozen:
    """Features (N, D) and labels (N,) of the pictures to label and of the test pictures."""

    x: Array
    y: Array
    test_x: Array
    test_y: Array


def frozen(name: str, cache: Path) -> Frozen:
    """The same pictures each time; the first time their features are computed."""
    file = cache / f"{name}.npz"
    if not file.is_file():
        data = load(name)
        parts = [(data.train, POOL, "pool"), (data.test, TEST, "test")]
        rows = [torch.randperm(len(p), generator=generator(0, why))[:count] for p, count, why in parts]
        x, test_x = components(*(described(name, p.images[i]) for (p, _, _), i in zip(parts, rows, strict=True)))
        y, test_y = (p.labels[i].numpy() for (p, _, _), i in zip(parts, rows, strict=True))
        cache.mkdir(parents=True, exist_ok=True)
        np.savez(fresh := cache / f"{name}.part.npz", x=x, y=y, test_x=test_x, test_y=test_y)
        fresh.replace(file)
    with np.load(file, allow_pickle=False) as kept:
        return Frozen(**{key: kept[key] for key in ("x", "y", "test_x", "test_y")})


def described(name: str, images: torch.Tensor) -> Array:
    if name != "cifar10":
        return hog(images.numpy())
    trunk = Trunk("efficientnet-lite0", tuple(images.shape[1:]), 255.0, "imagenet")
    trunk.net[0].size = 160  # type: ignore[index,union-attr]
    return rooted(trunk(images)).numpy()


def components(x: Array, test: Array) -> tuple[Array, Array]:
    """Both, in the principal components of the first."""
    mean = x.mean(0)
    values, axes = np.linalg.eigh(np.cov((x - mean).T))
    axes = axes[:, np.argsort(-values)[:COMPONENTS]]
    scale = np.sqrt(np.square((x - mean) @ axes).mean())
    return ((x - mean) @ axes / scale).astype(np.float32), ((test - mean) @ axes / scale).astype(np.float32)
