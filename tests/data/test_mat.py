"""Our reader of .mat files agrees with scipy's, and refuses what it cannot read."""

from __future__ import annotations

import io
import struct
from pathlib import Path

import numpy as np
import pytest
from scipy.io import loadmat, savemat

from certus.data.mat import read_mat

ARRAYS = {
    "X": np.arange(2 * 3 * 4 * 5, dtype=np.uint8).reshape(2, 3, 4, 5),
    "y": np.array([[1], [10]]),
    "a": np.array([[0.5, -1]]),
    "i": np.array([[7]], np.int16),
    "large": np.random.default_rng(0).integers(0, 256, (300, 4000), dtype=np.uint8),  # more than one chunk
    "text": "not read",
    "cell": np.array([[1, "a"]], dtype=object),
}
NUMBERS = ("X", "y", "a", "i", "large")


@pytest.fixture(params=[False, True], ids=["plain", "packed"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    savemat(tmp_path / "a.mat", ARRAYS, do_compression=request.param)
    return tmp_path / "a.mat"


def test_agrees_with_scipy(path: Path) -> None:
    found, expected = read_mat(path, NUMBERS), loadmat(path)
    assert found.keys() == set(NUMBERS)
    for name in NUMBERS:
        assert found[name].dtype == expected[name].dtype
        assert np.array_equal(found[name], expected[name])
        assert found[name].T.flags.c_contiguous
    assert found["X"].flags.writeable
    assert not read_mat(path, ("other",))


def test_what_is_no_array_of_numbers_is_refused(path: Path) -> None:
    for name in ("text", "cell"):
        with pytest.raises(ValueError, match=f"{name} is not an array of numbers"):
            read_mat(path, (name,))
    savemat(path, {"z": np.array([[1j]])})
    with pytest.raises(ValueError, match="z is not an array of numbers"):
        read_mat(path, ("z",))


def test_big_endian(tmp_path: Path) -> None:
    def part(kind: int, content: bytes) -> bytes:
        return struct.pack(">II", kind, len(content)) + content + bytes(-len(content) % 8)

    inside = part(6, struct.pack(">II", 11, 0)) + part(5, struct.pack(">ii", 1, 2)) + part(1, b"a")
    inside += part(4, struct.pack(">HH", 258, 3))
    (tmp_path / "a.mat").write_bytes(b"MATLAB 5.0".ljust(124) + b"\1\0MI" + part(14, inside))
    assert read_mat(tmp_path / "a.mat", ("a",))["a"].tolist() == [[258, 3]] == loadmat(tmp_path / "a.mat")["a"].tolist()


def test_every_cut_is_noticed(tmp_path: Path) -> None:
    for packed in (False, True):
        file = io.BytesIO()
        savemat(file, {"X": ARRAYS["X"]}, do_compression=packed)
        whole = file.getvalue()
        for n in [*range(128), *range(129, len(whole))]:  # 128 bytes are a file without arrays
            (tmp_path / "a.mat").write_bytes(whole[:n])
            with pytest.raises(ValueError, match="it is"):
                read_mat(tmp_path / "a.mat", ("X",))


def test_a_length_is_not_believed_before_it_is_checked(tmp_path: Path) -> None:
    """A file of 300 bytes that claims 4 GB of numbers."""
    file = io.BytesIO()
    savemat(file, {"X": ARRAYS["X"]})
    data = bytearray(file.getvalue())
    at = data.index(struct.pack("<iiii", 2, 3, 4, 5))
    data[at : at + 16] = struct.pack("<iiii", 2**31 - 1, 2, 1, 1)
    at = data.index(struct.pack("<II", 2, 120))
    data[at : at + 8] = struct.pack("<II", 2, 2**32 - 2)
    (tmp_path / "a.mat").write_bytes(data)
    with pytest.raises(ValueError, match="X has 4,294,967,294 bytes"):
        read_mat(tmp_path / "a.mat", ("X",))
