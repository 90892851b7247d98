"""Vectors of pictures, remembered by their pixels: each is made once, damage is noticed, a full disk does no harm."""

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from certus.data import remembered
from certus.data.remembered import Remembered, heard_by


class Embedding:
    """Sums and mean of each image's pixels; counts the images that it was asked for."""

    asked = 0

    def __call__(self, images):
        self.asked += len(images)
        flat = images.flatten(1).float()
        return torch.stack([flat.sum(1) / 64, flat.mean(1), flat[:, 0]], 1)


def images(count, seed=0):
    return torch.randint(0, 256, (count, 3, 4, 4), generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)


def asked(folder, pictures, rows=None):
    """The vectors, and how many were made."""
    embedding = Embedding()
    rows = torch.arange(len(pictures)) if rows is None else torch.tensor(rows)
    return Remembered("a-network", 3, folder)(pictures, rows, embedding), embedding.asked


def test_each_picture_is_embedded_once(tmp_path, monkeypatch):
    monkeypatch.setattr(remembered, "BLOCK", 3)
    few, all_of_them = images(10)[:7], images(10)
    first, made = asked(tmp_path, few)
    assert made == 7
    again, made = asked(tmp_path, few)
    assert made == 0
    assert torch.equal(first, again)
    more, made = asked(tmp_path, all_of_them.flip(0))
    assert made == 3
    assert torch.equal(more.flip(0)[:7], first)
    assert torch.equal(first, Embedding()(few).half().float())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(rows=st.lists(st.integers(0, 5), max_size=12))
def test_any_rows_in_any_order_also_twice(tmp_path, rows):
    found, _ = asked(tmp_path, images(6), rows)
    assert torch.equal(found, Embedding()(images(6)[rows]).half().float())


def test_another_network_has_its_own(tmp_path):
    asked(tmp_path, images(3))
    embedding = Embedding()
    Remembered("another", 3, tmp_path)(images(3), torch.arange(3), embedding)
    assert embedding.asked == 3


@pytest.mark.parametrize("damage", [b"", b"no array", None])
def test_a_damaged_file_is_made_again(tmp_path, damage):
    expected, _ = asked(tmp_path, images(4))
    (file,) = tmp_path.rglob("*.npy")
    if damage is None:  # one byte of one vector
        data = bytearray(file.read_bytes())
        data[-1] ^= 1
        file.write_bytes(data)
    else:
        file.write_bytes(damage)
    found, made = asked(tmp_path, images(4))
    assert made == (1 if damage is None else 4)
    assert torch.equal(found, expected)
    assert asked(tmp_path, images(4))[1] == 0


def test_without_a_folder_to_write_to_they_stay_in_memory(tmp_path):
    (tmp_path / "file").write_text("")
    expected, _ = asked(tmp_path, images(4))
    found, made = asked(tmp_path / "file", images(4))
    assert made == 4
    assert torch.equal(found, expected)


def test_progress_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(remembered, "BLOCK", 4)
    heard = []
    with heard_by(lambda *told: heard.append(told)):
        Remembered("a", 3, tmp_path)(images(10), torch.arange(10), Embedding())
    Remembered("b", 3, tmp_path)(images(10), torch.arange(10), Embedding())
    assert heard == [(4, 10), (8, 10), (10, 10)]


def test_nothing_is_unpickled(tmp_path):
    asked(tmp_path, images(2))
    (file,) = tmp_path.rglob("*.npy")
    np.save(file, np.array([object()]), allow_pickle=True)
    assert asked(tmp_path, images(2))[1] == 2
