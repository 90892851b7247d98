"""SVHN: house numbers of 32×32 pixels, 73,257 for training and 26,032 for testing, from the official .mat files."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias
from zlib import crc32

import numpy as np
import torch
from numpy.typing import NDArray

from certus.data.dataset import Dataset, Part
from certus.data.files import broken, check_labels, data_folder, locate, reading
from certus.data.mat import read_mat
from certus.writing import put

Bytes: TypeAlias = NDArray[np.uint8]

PIXELS = 3 * 32 * 32
KEY = 32  # bytes of the fingerprint
CHECK = 4  # bytes of the checksum
SLICE = 4096  # images that are transposed at a time


def svhn(root: Path | None = None) -> Dataset:
    train, test = locate("svhn", data_folder(root))
    return Dataset("svhn", tuple(map(str, range(10))), read(train), read(test))


def read(file: Path) -> Part:
    """Read the decoded copy beside the .mat file; the first call makes it."""
    with reading("svhn", file):
        key = fingerprint(file)
    copy = file.with_name(f"{file.stem}.decoded.npy")
    decoded = read_copy(copy, key)
    if decoded is None:
        decoded = decode(file)
        write_copy(copy, key, *decoded)
    images, labels = decoded
    return Part(torch.from_numpy(images), torch.from_numpy(labels.astype(np.int64)))


def decode(file: Path) -> tuple[Bytes, Bytes]:
    """In the file, X is (row, column, colour, image), and y is 1..10 with 10 for the digit 0."""
    with reading("svhn", file):
        variables = read_mat(file, ("X", "y"))
    if not {"X", "y"} <= variables.keys():
        raise broken("svhn", file, "it does not hold the variables X and y")
    x, y = np.asarray(variables["X"]), np.asarray(variables["y"])
    if x.dtype != np.uint8 or x.shape[:-1] != (32, 32, 3) or x.size == 0:
        raise broken("svhn", file, f"X is {x.dtype} of shape {x.shape}, not uint8 of shape (32, 32, 3, N)")
    if y.dtype.kind not in "iu" or y.size != x.shape[-1]:
        raise broken(
            "svhn", file, f"y is {y.dtype} of shape {y.shape}, not an integer for each of {x.shape[-1]:,} images"
        )
    y = y.ravel()
    check_labels("svhn", file, y, 1, 10)
    images = np.require(x.T, requirements=["C", "W"])  # (N, 3, column, row): MATLAB's layout, so this is no copy
    for start in range(0, len(images), SLICE):  # transposed in place, slice by slice, to save memory
        part = images[start : start + SLICE]
        part[:] = part.swapaxes(2, 3).copy()  # (n, 3, row, column)
    return images, (y % 10).astype(np.uint8)


def fingerprint(file: Path) -> bytes:
    """A digest of the file, which its decoded copy must have; `person` is the version of the copy's layout."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=KEY, person=b"svhn 2")).digest()


def write_copy(copy: Path, key: bytes, images: Bytes, labels: Bytes) -> None:
    """Write images, labels, checksum and key as one array of bytes; without permission to write, do nothing."""
    size = images.size + labels.size + CHECK + KEY
    header: dict[str, Any] = {"descr": "|u1", "fortran_order": False, "shape": (size,)}

    def write(stream: BinaryIO) -> None:
        np.lib.format.write_array_header_1_0(stream, header)
        for piece in (images.data, labels.data, checksum(images, labels), key):
            stream.write(piece)

    with suppress(OSError):
        put(copy, write)


def checksum(images: Bytes, labels: Bytes) -> bytes:
    """As for the cache of pictures, crc32: what is trained on is what was decoded."""
    return crc32(labels.data, crc32(images.data)).to_bytes(CHECK, "little")


def read_copy(copy: Path, key: bytes) -> tuple[Bytes, Bytes] | None:
    """The decoded copy, mapped into memory (changes stay private); None if it is missing, outdated or damaged."""
    try:
        flat = np.load(copy, mmap_mode="c", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    n, rest = divmod(flat.size - CHECK - KEY, PIXELS + 1)
    if flat.dtype != np.uint8 or flat.ndim != 1 or n < 1 or rest or flat[-KEY:].tobytes() != key:
        return None
    pixels, labels, check = np.split(flat[:-KEY], [n * PIXELS, n * (PIXELS + 1)])
    images = pixels.reshape(n, 3, 32, 32)
    return (images, labels) if checksum(images, labels) == check.tobytes() else None
