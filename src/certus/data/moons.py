"""Two interleaved half circles in the plane: a very small problem that a few labels alone do not solve."""

from __future__ import annotations

import numpy as np
import torch

from certus.data.dataset import Dataset, Part


def moons() -> Dataset:
    from sklearn.datasets import make_moons

    def part(n: int, seed: int) -> Part:
        x, y = make_moons(n, noise=0.1, random_state=seed)
        return Part(torch.from_numpy(x.astype(np.float32)), torch.from_numpy(y.astype(np.int64)))

    return Dataset("moons", ("upper", "lower"), part(1000, 0), part(1000, 1))
