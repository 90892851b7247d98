"""Fashion-MNIST from files in the official idx format, packed or plain."""

from __future__ import annotations

import gzip
import os
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from certus.data.fashion_mnist import fashion_mnist
from certus.data.files import OFFICIAL
from certus.errors import CertusError

TRAIN, TEST = [1, 9, 0], [4, 4]


def pixels(n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, 28, 28), np.uint8)


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


FILES = {
    "train-images-idx3-ubyte": idx(pixels(3, 0)),
    "train-labels-idx1-ubyte": idx(np.array(TRAIN)),
    "t10k-images-idx3-ubyte": idx(pixels(2, 1)),
    "t10k-labels-idx1-ubyte": idx(np.array(TEST)),
}


def write(folder: Path, packed: bool = True) -> None:
    folder.mkdir(parents=True)
    for name, data in FILES.items():
        (folder / (f"{name}.gz" if packed else name)).write_bytes(gzip.compress(data) if packed else data)


@pytest.fixture(autouse=True)
def debian(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Takes the place of the folder of Debian's package, which not every machine has."""
    folder = tmp_path / "debian"

    def redirected(path: str) -> str:
        return str(folder / Path(path).name) if path.startswith("/") else path

    files = (replace(file, locations=tuple(map(redirected, file.locations))) for file in OFFICIAL["fashion-mnist"])
    monkeypatch.setitem(OFFICIAL, "fashion-mnist", tuple(files))
    return folder


def check(root: Path) -> None:
    data = fashion_mnist(root)
    assert (data.name, len(data.classes), data.shape) == ("fashion-mnist", 10, (1, 28, 28))
    for part, images, labels in [(data.train, pixels(3, 0), TRAIN), (data.test, pixels(2, 1), TEST)]:
        assert part.images.dtype == torch.uint8
        assert part.images.is_contiguous()
        assert np.array_equal(part.images.numpy()[:, 0], images)
        assert part.labels.dtype == torch.int64
        assert part.labels.tolist() == labels


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("folder", ["fashion-mnist", "FashionMNIST/raw"])
def test_packed_or_plain_in_either_folder(folder: str, packed: bool, tmp_path: Path) -> None:
    write(tmp_path / folder, packed)
    check(tmp_path)


def test_a_plain_file_under_a_packed_name(tmp_path: Path) -> None:
    write(tmp_path / "fashion-mnist")
    (tmp_path / "fashion-mnist/t10k-images-idx3-ubyte.gz").write_bytes(FILES["t10k-images-idx3-ubyte"])
    check(tmp_path)


def test_the_package_of_debian_is_the_last_resort(debian: Path, tmp_path: Path) -> None:
    write(debian)
    check(tmp_path)
    write(tmp_path / "fashion-mnist")
    (debian / "train-images-idx3-ubyte.gz").write_bytes(b"broken")
    check(tmp_path)


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(name: str, tmp_path: Path) -> None:
    write(tmp_path / "fashion-mnist")
    path = tmp_path / f"fashion-mnist/{name}.gz"
    path.unlink()
    with pytest.raises(CertusError) as error:
        fashion_mnist(tmp_path)
    assert f"fashion-mnist needs {path}, but there is no such file: run `certus data fetch fashion-mnist`" in str(
        error.value
    )
    assert f"{name}.gz to {path}." in str(error.value)


images, labels = FILES["train-images-idx3-ubyte"], FILES["train-labels-idx1-ubyte"]
packed = gzip.compress(images)


@pytest.mark.parametrize(
    ("file", "data", "why"),
    [
        ("train-images-idx3-ubyte.gz", packed[:-1], r"cannot be read \("),
        ("train-images-idx3-ubyte.gz", packed[:1000], r"cannot be read \("),
        ("train-images-idx3-ubyte.gz", packed[:-8] + bytes(8), r"cannot be read \("),
        ("train-images-idx3-ubyte.gz", packed[:500] + bytes(50) + packed[550:], r"cannot be read \("),
        ("train-images-idx3-ubyte.gz", images[:-1], "2,351 bytes, too few for 3 items"),
        ("train-images-idx3-ubyte.gz", gzip.compress(images + b"0"), "too many bytes for 3 items"),
        ("train-images-idx3-ubyte.gz", b"", "begins with nothing"),
        ("train-images-idx3-ubyte.gz", images[:9], r"cannot be read \("),
        ("train-images-idx3-ubyte.gz", b"<html>", "begins with 3c 68 74 6d, so it is not an idx file"),
        ("train-images-idx3-ubyte.gz", labels, "begins with 00 00 08 01"),
        ("train-images-idx3-ubyte.gz", idx(pixels(3, 0)[:, :27]), r"3 items of shape \(27, 28\), not of \(28, 28\)"),
        ("train-images-idx3-ubyte.gz", idx(pixels(0, 0)), "0 items"),
        ("train-images-idx3-ubyte.gz", struct.pack(">4I", 0x803, 2**32 - 1, 28, 28), "cannot be used"),
        ("train-labels-idx1-ubyte.gz", idx(np.array([1, 10, 0])), r"label 10 of image 1 is not in 0\.\.9"),
        ("train-labels-idx1-ubyte.gz", idx(np.array([1, 2])), "2 labels for the 3 images of train-images-idx3-ubyte"),
    ],
)
def test_a_broken_file_is_named(file: str, data: bytes, why: str, tmp_path: Path) -> None:
    write(tmp_path / "fashion-mnist")
    (tmp_path / "fashion-mnist" / file).write_bytes(data)
    with pytest.raises(CertusError, match=rf"{file} cannot be used: .*`certus data fetch fashion-mnist`\.$") as error:
        fashion_mnist(tmp_path)
    error.match(why)


def test_the_real_one() -> None:
    folder = os.environ.get("CERTUS_DATA")
    if not folder:
        pytest.skip("CERTUS_DATA is not set")
    root = Path(folder)
    if any(file.missing(root) and not file.found(root) for file in OFFICIAL["fashion-mnist"]):
        pytest.skip("there is no Fashion-MNIST in CERTUS_DATA")
    data = fashion_mnist(root)
    assert data.train.labels.bincount().tolist() == [6000] * 10
    assert data.test.labels.bincount().tolist() == [1000] * 10
    mean = data.train.images.flatten().bincount(minlength=256) @ torch.arange(256) / data.train.images.numel() / 255
    assert float(mean) == pytest.approx(0.2860, abs=1e-4)  # as published everywhere
