"""SVHN from .mat files in the official format, and the decoded copy beside them."""

from __future__ import annotations

import importlib
import io
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.io import savemat

from certus.data.files import OFFICIAL
from certus.data.svhn import svhn
from certus.errors import CertusError

module = importlib.import_module("certus.data.svhn")


def pixels(n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, 3, 32, 32), np.uint8)


def mat(images: np.ndarray, labels: list[int]) -> bytes:
    """Compressed, X as (row, column, colour, image), y as a column."""
    buffer = io.BytesIO()
    y = np.array(labels, np.uint8)[:, None]
    savemat(buffer, {"X": images.transpose(2, 3, 1, 0), "y": y}, do_compression=True)
    return buffer.getvalue()


def other(**variables: np.ndarray) -> Callable[[bytes], bytes]:
    buffer = io.BytesIO()
    savemat(buffer, variables)
    return lambda _: buffer.getvalue()


def forbid(monkeypatch: pytest.MonkeyPatch) -> None:
    def decode(file: Path) -> None:
        pytest.fail(f"{file} is decoded again")

    monkeypatch.setattr(module, "decode", decode)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "svhn").mkdir()
    (tmp_path / "svhn/train_32x32.mat").write_bytes(mat(pixels(4, 0), [1, 10, 9, 5]))
    (tmp_path / "svhn/test_32x32.mat").write_bytes(mat(pixels(2, 1), [10, 3]))
    return tmp_path


def check(root: Path) -> None:
    data = svhn(root)
    assert (data.name, data.classes, data.shape) == ("svhn", tuple("0123456789"), (3, 32, 32))
    for part, images, labels in [(data.train, pixels(4, 0), [1, 0, 9, 5]), (data.test, pixels(2, 1), [0, 3])]:
        assert part.images.dtype == torch.uint8
        assert part.images.is_contiguous()
        assert np.array_equal(part.images.numpy(), images)
        assert part.labels.dtype == torch.int64
        assert part.labels.tolist() == labels


def test_first_and_second_load_agree(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check(root)
    forbid(monkeypatch)
    check(root)
    names = {path.name for path in (root / "svhn").iterdir()}
    assert names == {f"{part}_32x32.{end}" for part in ("train", "test") for end in ("mat", "decoded.npy")}


def test_more_images_than_are_transposed_at_a_time(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SLICE", 3)
    check(root)


def test_the_files_may_be_in_the_data_folder_itself(root: Path) -> None:
    for file in (root / "svhn").iterdir():
        file.rename(root / file.name)
    check(root)


def test_changes_to_the_images_stay_private(root: Path) -> None:
    svhn(root)
    svhn(root).train.images.zero_()
    check(root)


def test_another_file_is_decoded_anew_though_its_size_and_time_are_the_same(root: Path) -> None:
    file = root / "svhn/train_32x32.mat"
    before = file.stat()
    svhn(root)
    file.write_bytes(mat(pixels(4, 0), [2, 10, 9, 5]))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert svhn(root).train.labels.tolist() == [2, 0, 9, 5]


def altered(place: int) -> Callable[[bytes], bytes]:
    """One bit of the byte at this place, from the end, is another."""
    return lambda data: data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


@pytest.mark.parametrize(
    "damage",
    [lambda data: data[:-1], lambda data: data[:200], lambda data: data + b"0", lambda _: b"", lambda _: b"0"]
    + [altered(place) for place in (128, -3000, -41, -37, -36, -33, -32, -1)],
    ids="cut shorter longer empty no-npy pixel pixels last-pixel label check check-end key key-end".split(),
)
def test_a_broken_copy_is_made_anew(damage: Callable[[bytes], bytes], root: Path) -> None:
    svhn(root)
    copy = root / "svhn/train_32x32.decoded.npy"
    good = copy.read_bytes()
    copy.write_bytes(damage(good))
    check(root)
    assert copy.read_bytes()[: len(good)] == good


def test_a_copy_is_never_unpickled(root: Path) -> None:
    copy = root / "svhn/train_32x32.decoded.npy"
    np.save(copy, np.array([{"not": "bytes"}], dtype=object), allow_pickle=True)
    check(root)


def test_a_folder_that_cannot_be_written_can_still_be_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", denied)
    check(root)
    assert {path.suffix for path in (root / "svhn").iterdir()} == {".mat"}
    (root / "svhn/train_32x32.decoded.npy").mkdir()
    check(root)


def denied(_: int) -> None:
    raise PermissionError(13, "Permission denied")


@pytest.mark.parametrize("file", ["train_32x32.mat", "test_32x32.mat"])
def test_a_missing_file_is_named(file: str, root: Path) -> None:
    (root / "svhn" / file).unlink()
    with pytest.raises(CertusError) as error:
        svhn(root)
    path = root / "svhn" / file
    assert f"svhn needs {path}, but there is no such file: run `certus data fetch svhn`, or download http://" in str(
        error.value
    )


X, Y = pixels(2, 3).transpose(2, 3, 1, 0), np.array([[1], [2]], np.uint8)


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda data: data[:-1], r"cannot be read \("),
        (lambda data: data[: len(data) // 2], r"cannot be read \("),
        (lambda data: data[:3000] + bytes((data[3000] ^ 1,)) + data[3001:], r"cannot be read \("),
        (lambda _: b"", r"cannot be read \("),
        (lambda _: b"<html>not a .mat file</html>" * 20, r"cannot be read \("),
        (other(X=X), "does not hold the variables X and y"),
        (other(X=X.astype(np.float32), y=Y), "X is float32 of shape"),
        (other(X=X[:28], y=Y), r"X is uint8 of shape \(28, 32, 3, 2\)"),
        (other(X=X, y=Y[:1]), r"y is uint8 of shape \(1, 1\), not an integer for each of 2 images"),
        (other(X=X, y=Y / 3), "y is float64"),
        (other(X=X, y=Y - 1), r"label 0 of image 0 is not in 1\.\.10"),
        (other(X=X, y=Y + 9), r"label 11 of image 1 is not in 1\.\.10"),
    ],
    ids=["short", "half", "bit", "empty", "html", "no y", "float", "size", "few y", "real y", "label 0", "label 11"],
)
def test_a_broken_file_is_named(damage: Callable[[bytes], bytes], why: str, root: Path) -> None:
    path = root / "svhn/test_32x32.mat"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(CertusError, match=rf"test_32x32\.mat cannot be used: .*{why}.*`certus data fetch svhn`\.$"):
        svhn(root)
    assert not (root / "svhn/test_32x32.decoded.npy").exists()


def test_the_real_one(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = os.environ.get("CERTUS_DATA")
    if not folder:
        pytest.skip("CERTUS_DATA is not set")
    root = Path(folder)
    if any(file.missing(root) and not file.found(root) for file in OFFICIAL["svhn"]):
        pytest.skip("there is no SVHN in CERTUS_DATA")
    data = svhn(root)
    assert data.train.labels.bincount().tolist() == [4948, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4659]
    assert data.test.labels.bincount().tolist() == [1744, 5099, 4149, 2882, 2523, 2384, 1977, 2019, 1660, 1595]
    assert (len(data.train), len(data.test)) == (73_257, 26_032)
    histogram = torch.stack([data.train.images[:, c].flatten().bincount(minlength=256) for c in range(3)])
    mean = (histogram * torch.arange(256)).sum(1) / histogram.sum(1) / 255
    assert mean.tolist() == pytest.approx([0.4377, 0.4438, 0.4728], abs=1e-4)  # as published everywhere
    if not all(file.paths(root)[0].with_suffix(".decoded.npy").is_file() for file in OFFICIAL["svhn"]):
        pytest.skip("CERTUS_DATA cannot be written, so there is no decoded copy to read again")
    forbid(monkeypatch)
    again = svhn(root)
    assert torch.equal(again.train.images, data.train.images)
    assert torch.equal(again.test.labels, data.test.labels)
