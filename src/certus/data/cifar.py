"""CIFAR-10 and CIFAR-100: 60,000 colour photographs of 32×32 pixels each, from the official binary version."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from certus.data.dataset import Dataset, Part
from certus.data.files import broken, check_labels, data_folder, locate, reading

PIXELS = 3 * 32 * 32  # bytes of one image: all of red, then green, then blue, each row by row


def cifar10(root: Path | None = None) -> Dataset:
    """A record is one class byte and the pixels."""
    *train, test, names = locate("cifar10", data_folder(root))
    classes = lines("cifar10", names, 10)
    return Dataset("cifar10", classes, records("cifar10", train, (10,)), records("cifar10", [test], (10,)))


def cifar100(root: Path | None = None) -> Dataset:
    """A record is a byte for the coarse class (one of 20, not used), a byte for the fine class, and the pixels."""
    train, test, names = locate("cifar100", data_folder(root))
    classes = lines("cifar100", names, 100)
    return Dataset("cifar100", classes, records("cifar100", [train], (20, 100)), records("cifar100", [test], (20, 100)))


def records(name: str, files: Sequence[Path], kinds: Sequence[int]) -> Part:
    """Read records: one label byte for each number of classes in `kinds`, of which the last is used, and the pixels."""
    size = len(kinds) + PIXELS
    counts = [count(name, file, size) for file in files]
    images = np.empty((sum(counts), PIXELS), np.uint8)
    labels = np.empty(sum(counts), np.int64)
    end = 0
    for file, n in zip(files, counts, strict=True):
        start, end = end, end + n
        with reading(name, file):
            rows = np.fromfile(file, np.uint8).reshape(n, size)
        for column, classes in enumerate(kinds):
            check_labels(name, file, rows[:, column], 0, classes - 1)
        images[start:end] = rows[:, len(kinds) :]
        labels[start:end] = rows[:, len(kinds) - 1]
    return Part(torch.from_numpy(images).view(-1, 3, 32, 32), torch.from_numpy(labels))


def count(name: str, file: Path, size: int) -> int:
    """The number of records of this size in the file."""
    total = file.stat().st_size
    n, rest = divmod(total, size)
    if rest or not n:
        raise broken(name, file, f"its {total:,} bytes are not a whole number of records of {size:,} bytes")
    return n


def lines(name: str, file: Path, classes: int) -> tuple[str, ...]:
    """The names of the classes, one on each line."""
    with reading(name, file):
        found = tuple(line.strip() for line in file.read_text("ascii").splitlines() if line.strip())
    if len(set(found)) != classes or len(found) != classes:
        raise broken(name, file, f"it does not name {classes} different classes")
    return found
