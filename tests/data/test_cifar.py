"""CIFAR-10 and CIFAR-100 from files in the official binary format."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from certus.data.cifar import cifar10, cifar100
from certus.data.files import OFFICIAL
from certus.errors import CertusError

NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
BATCHES = [f"data_batch_{i}.bin" for i in range(1, 6)]


def pixels(n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, 3, 32, 32), np.uint8)


def write(file: Path, labels: list[list[int]], images: np.ndarray) -> None:
    file.write_bytes(b"".join(bytes(label) + image.tobytes() for label, image in zip(labels, images, strict=True)))


@pytest.fixture
def ten(tmp_path: Path) -> Path:
    """Batches of 1, 2, 3, 4 and 5 images, and 2 test images."""
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    for i, batch in enumerate(BATCHES):
        write(folder / batch, [[(i + j) % 10] for j in range(i + 1)], pixels(i + 1, i))
    write(folder / "test_batch.bin", [[9], [0]], pixels(2, 9))
    (folder / "batches.meta.txt").write_text("\n".join(NAMES) + "\n\n")
    return tmp_path


@pytest.fixture
def hundred(tmp_path: Path) -> Path:
    folder = tmp_path / "cifar-100-binary"
    folder.mkdir()
    write(folder / "train.bin", [[19, 99], [0, 7], [3, 0]], pixels(3, 1))
    write(folder / "test.bin", [[1, 50]], pixels(1, 2))
    (folder / "fine_label_names.txt").write_text("".join(f"class_{c}\n" for c in range(100)))
    return tmp_path


def test_ten(ten: Path) -> None:
    data = cifar10(ten)
    assert (data.name, data.classes, data.shape) == ("cifar10", NAMES, (3, 32, 32))
    assert data.train.images.dtype == torch.uint8
    assert data.train.images.is_contiguous()
    assert np.array_equal(data.train.images.numpy(), np.concatenate([pixels(i + 1, i) for i in range(5)]))
    assert np.array_equal(data.test.images.numpy(), pixels(2, 9))
    assert data.train.labels.dtype == torch.int64
    assert data.train.labels.tolist() == [0, 1, 2, 2, 3, 4, 3, 4, 5, 6, 4, 5, 6, 7, 8]
    assert data.test.labels.tolist() == [9, 0]


def test_hundred_reads_the_fine_label(hundred: Path) -> None:
    data = cifar100(hundred)
    assert (data.name, len(data.classes), data.classes[99]) == ("cifar100", 100, "class_99")
    assert data.train.labels.tolist() == [99, 7, 0]
    assert data.test.labels.tolist() == [50]
    assert np.array_equal(data.train.images.numpy(), pixels(3, 1))


def test_the_official_archive_is_unpacked_on_the_way(ten: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    with tarfile.open(other / "cifar-10-binary.tar.gz", "w:gz") as tar:
        tar.add(ten / "cifar-10-batches-bin", "cifar-10-batches-bin")
        readme = tarfile.TarInfo("cifar-10-batches-bin/readme.html")
        tar.addfile(readme, io.BytesIO())
    assert cifar10(other).fingerprint == cifar10(ten).fingerprint


def test_the_folder_comes_from_the_environment(ten: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CERTUS_DATA", str(ten))
    assert len(cifar10().train) == 15


@pytest.mark.parametrize("file", [*BATCHES, "test_batch.bin", "batches.meta.txt"])
def test_a_missing_file_is_named(file: str, ten: Path) -> None:
    path = ten / "cifar-10-batches-bin" / file
    path.unlink()
    with pytest.raises(CertusError) as error:
        cifar10(ten)
    assert (
        f"cifar10 needs {path}, but there is no such file: run `certus data fetch cifar10`, or download https://"
        in str(error.value)
    )


@pytest.mark.parametrize(
    ("file", "damage", "why"),
    [
        (
            "data_batch_3.bin",
            lambda data: data[:-1],
            "its 9,218 bytes are not a whole number of records of 3,073 bytes",
        ),
        ("test_batch.bin", lambda data: data + b"0", "its 6,147 bytes are not a whole number of records"),
        ("data_batch_1.bin", lambda _: b"", "its 0 bytes are not"),
        ("data_batch_2.bin", lambda data: data[:3073] + b"\x0a" + data[3074:], r"label 10 of image 1 is not in 0\.\.9"),
        ("batches.meta.txt", lambda data: data.replace(b"truck", b""), "does not name 10 different classes"),
        ("batches.meta.txt", lambda data: data.replace(b"truck", b"ship"), "does not name 10 different classes"),
        ("batches.meta.txt", lambda _: bytes(range(256)), r"cannot be read \("),
    ],
    ids=["short", "long", "empty", "label", "nine names", "same names", "no text"],
)
def test_a_broken_file_is_named(file: str, damage: Callable[[bytes], bytes], why: str, ten: Path) -> None:
    path = ten / "cifar-10-batches-bin" / file
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(CertusError, match=rf"{file} cannot be used: .*{why}.*`certus data fetch cifar10`\.$"):
        cifar10(ten)


@pytest.mark.parametrize(
    ("position", "value", "why"), [(0, 20, r"label 20 .* 0\.\.19"), (1, 100, r"label 100 .* 0\.\.99")]
)
def test_both_labels_of_a_hundred_are_checked(position: int, value: int, why: str, hundred: Path) -> None:
    path = hundred / "cifar-100-binary/test.bin"
    data = bytearray(path.read_bytes())
    data[position] = value
    path.write_bytes(data)
    with pytest.raises(CertusError, match=rf"test\.bin cannot be used: {why}"):
        cifar100(hundred)


def test_the_real_one() -> None:
    folder = os.environ.get("CERTUS_DATA")
    if not folder:
        pytest.skip("CERTUS_DATA is not set")
    root = Path(folder)
    if any(file.missing(root) and not file.found(root) for file in OFFICIAL["cifar10"]):
        pytest.skip("there is no CIFAR-10 in CERTUS_DATA")
    data = cifar10(root)
    assert data.classes == NAMES
    assert data.train.labels.bincount().tolist() == [5000] * 10
    assert data.test.labels.bincount().tolist() == [1000] * 10
    histogram = torch.stack([data.train.images[:, c].flatten().bincount(minlength=256) for c in range(3)])
    mean = (histogram * torch.arange(256)).sum(1) / histogram.sum(1) / 255
    assert mean.tolist() == pytest.approx([0.4914, 0.4822, 0.4465], abs=1e-4)  # as published everywhere
    assert data.train.images[0, :, 0, 0].tolist() == [59, 62, 63]  # the frog, red, green and blue
    assert data.classes[data.train.labels[0]] == "frog"
