"""Only regular files are opened, and pictures are decoded within a stated memory."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from PIL import Image

from certus.data import limits
from certus.data.decode import Unreadable, decode, shorter_side, stream
from certus.data.limits import Budget, most_bytes, most_pixels
from certus.errors import UsageError


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "a.png")
    return tmp_path / "a.png"


def test_what_is_no_regular_file_is_not_opened(tmp_path: Path, fifo: Path) -> None:
    (tmp_path / "pipe.png").symlink_to(fifo)
    (tmp_path / "endless.png").symlink_to("/dev/zero")
    (tmp_path / "folder.png").mkdir()
    for name in ("a.png", "pipe.png", "endless.png", "folder.png"):
        with pytest.raises(Unreadable, match="it is not a regular file"):
            decode(tmp_path / name, 8)
        assert shorter_side(tmp_path / name) is None


def test_a_file_of_200_gb_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "a.png").open("wb") as file:
        file.truncate(200_000_000_000)
    with pytest.raises(Unreadable, match=r"200,000,000,000 bytes.*256,000,000.*CERTUS_MAX_BYTES"):
        decode(tmp_path / "a.png", 8)
    assert shorter_side(tmp_path / "a.png") is None


def test_a_file_that_grows_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Image.new("L", (9, 9)).save(tmp_path / "a.png")
    monkeypatch.setattr("certus.data.decode.check_file", lambda path: path.stat().st_size - 1)
    with pytest.raises(Unreadable, match="still being written"):
        decode(tmp_path / "a.png", 8)


@pytest.mark.parametrize("given", ["0", "-1", "many", "1e9", "9" * 5000])
def test_limits_from_the_environment(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    assert (most_pixels(), most_bytes()) == (limits.PIXELS, limits.BYTES)
    monkeypatch.setenv("CERTUS_MAX_BYTES", "12")
    assert most_bytes() == 12
    monkeypatch.setenv("CERTUS_MAX_PIXELS", given)
    with pytest.raises(UsageError, match="CERTUS_MAX_PIXELS must be a whole number above 0"):
        most_pixels()


def test_threads_share_a_budget() -> None:
    budget, most = Budget(), 10
    seen: set[int] = set()

    def work(amount: int) -> None:
        for _ in range(50):
            with budget.take(amount, most):
                seen.add(budget.taken)

    threads = [threading.Thread(target=work, args=(amount,)) for amount in (1, 2, 3, 5, 7, 10, 25)]  # 25 goes alone
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert budget.taken == 0
    assert {n for n in seen if n > most} == {25}


def test_decoding_takes_the_pixels_of_each_picture_from_the_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight threads, pictures of 900 pixels, a limit of 2,000: two at a time."""
    for i in range(12):
        Image.new("L", (30, 30), i).save(tmp_path / f"{i:02}.png")
    monkeypatch.setenv("CERTUS_MAX_PIXELS", "2000")
    monkeypatch.setattr("certus.data.decode.WORKERS", 8)
    monkeypatch.setattr("certus.data.decode.CHUNK", 1)
    seen, load = [], Image.Image.convert

    def spy(image: Image.Image, *words: object, **named: object) -> Image.Image:
        seen.append(limits.pixels_in_use.taken)
        return load(image, *words, **named)

    monkeypatch.setattr(Image.Image, "convert", spy)
    ((names, images, skipped),) = stream(tmp_path.iterdir(), 8, 3, 256)
    assert (len(names), len(skipped)) == (12, 0)
    assert images[:, 0, 0, 0].tolist() == list(range(12))
    assert set(seen) <= {900, 1800}
    assert limits.pixels_in_use.taken == limits.bytes_in_use.taken == 0
