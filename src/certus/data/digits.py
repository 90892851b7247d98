"""scikit-learn's digits: 1,797 handwritten digits of 8×8 pixels, part of the package, no download."""

from __future__ import annotations

import numpy as np
import torch

from certus.data.dataset import Dataset, Part


def digits() -> Dataset:
    """A fixed, stratified 30 % are the test set, because the data set has no official one."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    raw = load_digits()
    images = np.round(raw.images * (255 / 16)).astype(np.uint8)[:, None]  # (N, 1, 8, 8)
    train, test = train_test_split(np.arange(len(images)), test_size=0.3, stratify=raw.target, random_state=0)
    x, y = torch.from_numpy(images), torch.from_numpy(raw.target.astype(np.int64))
    return Dataset("digits", tuple(map(str, range(10))), Part(x[train], y[train]), Part(x[test], y[test]))
