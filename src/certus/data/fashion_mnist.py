"""Fashion-MNIST: 70,000 grey pictures of clothes of 28×28 pixels, from the official idx files."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from certus.data.dataset import Dataset, Part
from certus.data.files import broken, check_labels, data_folder, locate, reading

CLASSES = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip


def fashion_mnist(root: Path | None = None) -> Dataset:
    train_images, train_labels, test_images, test_labels = locate("fashion-mnist", data_folder(root))
    return Dataset("fashion-mnist", CLASSES, part(train_images, train_labels), part(test_images, test_labels))


def part(images: Path, labels: Path) -> Part:
    x, y = idx(images, (28, 28)), idx(labels, ())
    check_labels("fashion-mnist", labels, y, 0, len(CLASSES) - 1)
    if len(x) != len(y):
        raise broken("fashion-mnist", labels, f"it holds {len(y):,} labels for the {len(x):,} images of {images.name}")
    return Part(torch.from_numpy(x).unsqueeze(1), torch.from_numpy(y.astype(np.int64)))


def idx(file: Path, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Read an idx file: two zero bytes, type 8 (bytes), number of dimensions, each as 32 bits big-endian, the data."""
    with reading("fashion-mnist", file), file.open("rb") as raw:
        packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        with gzip.open(raw) if packed else raw as stream:
            magic = stream.read(4)
            if magic != bytes((0, 0, 8, 1 + len(shape))):
                raise broken(
                    "fashion-mnist", file, f"it begins with {magic.hex(' ') or 'nothing'}, so it is not an idx file"
                )
            n, *sizes = np.frombuffer(stream.read(4 * (1 + len(shape))), ">u4").tolist()
            if tuple(sizes) != shape or n == 0:
                raise broken("fashion-mnist", file, f"it holds {n:,} items of shape {tuple(sizes)}, not of {shape}")
            size = n * int(np.prod(shape, dtype=int))
            data = stream.read(size + 1)  # one byte more, to reach the end, where gzip checks its checksum
    if len(data) != size:
        held = f"{len(data):,} bytes, too few" if len(data) < size else "too many bytes"
        raise broken("fashion-mnist", file, f"after its header there are {held} for {n:,} items")
    return np.frombuffer(data, np.uint8).reshape(n, *shape).copy()
