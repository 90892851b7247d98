"""A folder of pictures becomes a data set: images, labels, unreadable pictures, size and summary."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from builders import write_pictures
from PIL import Image

from certus.data.decode import choose_size, decode
from certus.data.pictures import Pictures, load
from certus.errors import UsageError

EXAMPLE = Path(__file__).parents[2] / "examples" / "digits_as_pictures.py"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def everything(root: Path) -> Path:
    write_pictures(root, "cat/a.png", "cat/b.png", "dog/c.png", "unlabeled/d.png", "unlabeled/e.png", "val/dog/f.png")
    return write_pictures(root, "test/dog/g.png", "test/cat/h.png=unlabeled/e.png", "test/unlabeled/i.png")


def check(pictures: Pictures, root: Path) -> None:
    """Every image is that of its file."""
    parts = {"train": pictures.dataset.train, "validation": pictures.validation, "test": pictures.dataset.test}
    for role, part in parts.items():
        if part is None:
            assert pictures.files[role] == ()
            continue
        assert len(part.images) == len(part.labels) == len(pictures.files[role])
        assert (part.images.dtype, part.labels.dtype) == (torch.uint8, torch.int64)
        for file, image in zip(pictures.files[role], part.images, strict=True):
            assert (np.broadcast_to(image.numpy(), (3, *image.shape[1:])) == decode(root / file, pictures.size)).all()


def test_load(root: Path, cache: Path) -> None:
    heard: list[tuple[int, int]] = []
    pictures = load(everything(root), size=16, cache=cache, listen=lambda *at: heard.append(at))
    check(pictures, root)
    data = pictures.dataset
    assert (data.name, data.classes, data.shape) == ("photos", ("cat", "dog"), (3, 16, 16))
    assert data.train.labels.tolist() == [0, 0, 1, -1, -1]
    assert pictures.validation is not None
    assert pictures.validation.labels.tolist() == [1]
    assert data.test.labels.tolist() == [0, 1]
    assert [str(file) for file in pictures.files["test"]] == ["test/cat/h.png", "test/dog/g.png"]
    assert pictures.duplicates == ((Path("unlabeled/e.png"), Path("test/cat/h.png")),)
    assert heard == [(i, 8) for i in range(1, 9)]
    assert load(root, size=16, cache=cache).dataset.fingerprint == data.fingerprint


def test_without_held_out_folders(root: Path, cache: Path) -> None:
    pictures = load(write_pictures(root, "cat/a.png", "dog/b.png"), size=8, cache=cache)
    check(pictures, root)
    assert pictures.validation is None
    assert len(pictures.dataset.test) == 0
    assert pictures.dataset.test.images.shape == (0, 3, 8, 8)
    assert pictures.dataset.test.labels.dtype == torch.int64


def test_grey_pictures_have_one_channel(root: Path, cache: Path) -> None:
    for name, level in (("cat/a.png", 10), ("dog/b.jpg", 200)):
        (root / name).parent.mkdir(parents=True)
        Image.new("L" if name.endswith("jpg") else "RGB", (9, 9), (level,) * (1 if name.endswith("jpg") else 3)).save(
            root / name
        )
    pictures = load(root, size=8, cache=cache)
    assert pictures.dataset.train.images.shape == (2, 1, 8, 8)
    check(pictures, root)


def test_the_same_pixels_in_another_file_are_a_duplicate(root: Path, cache: Path) -> None:
    write_pictures(root, "cat/a.png", "dog/b.png", "test/dog/c.png")
    with Image.open(root / "dog/b.png") as image:
        image.save(root / "test/dog/d.bmp")
    assert load(root, size=8, cache=cache).duplicates == ((Path("dog/b.png"), Path("test/dog/d.bmp")),)


def test_unreadable_pictures_are_skipped_up_to_one_in_twenty(root: Path, cache: Path) -> None:
    write_pictures(root, *(f"{'cat' if i % 2 else 'dog'}/{i}.png" for i in range(19)))
    (root / "cat" / "1.png.png").write_bytes(b"")
    pictures = load(root, size=8, cache=cache)
    assert pictures.skipped == ((Path("cat/1.png.png"), "the file is empty"),)
    assert Path("cat/1.png.png") not in pictures.files["train"]
    check(pictures, root)
    lines = pictures.summary()
    at = lines.index("Skipped, because they cannot be read: 1")
    assert lines[at + 1] == "  cat/1.png.png: the file is empty"
    (root / "cat" / "2.png").write_bytes(b"hello")
    with pytest.raises(
        UsageError, match=r"^2 of the 21 pictures in .* cannot be read, which is more than 5%: .*2\.png \(it is not"
    ):
        load(root, size=8, cache=cache)


def test_a_long_list_of_unreadable_pictures_is_cut(root: Path, cache: Path) -> None:
    write_pictures(root, *(f"{'cat' if i % 2 else 'dog'}/{i}.png" for i in range(250)))
    for i in range(11):
        (root / "dog" / f"bad{i:02}.png").write_bytes(b"")
    pictures = load(root, size=8, cache=cache)
    assert len(pictures.skipped) == 11
    listed = [line for line in pictures.summary() if line.startswith("  ")]
    assert listed[-1] == "  and 1 more"
    assert len(listed) == 11


def test_a_class_of_unreadable_pictures(root: Path, cache: Path) -> None:
    write_pictures(root, *(f"{'cat' if i % 2 else 'dog'}/{i}.png" for i in range(30)), "owl/a.png")
    (root / "owl" / "a.png").write_bytes(b"")
    with pytest.raises(UsageError, match="No labelled training picture of class owl"):
        load(root, size=8, cache=cache)


@pytest.mark.parametrize("size", [0, 7, 1025, -64])
def test_a_size_out_of_range(root: Path, cache: Path, size: int) -> None:
    with pytest.raises(UsageError, match=f"`size` must be between 8 and 1024 pixels, but is {size}"):
        load(write_pictures(root, "cat/a.png", "dog/b.png"), size=size, cache=cache)


@pytest.mark.parametrize(
    ("sides", "size", "expected"),
    [
        ((8, 9, 10), 32, "median shorter side is 9, and 32 is the smallest automatic size"),
        ((40, 40, 500), 48, "median shorter side is 40, and 48 is the nearest of 32, 48, 64, 96, 128, 160"),
        ((20, 60, 61), 64, "median shorter side is 60, and 64 is the nearest"),
        ((90, 1080, 2000), 160, "median shorter side is 1,080, and 160 is the largest automatic size"),
    ],
)
def test_the_size_is_chosen_from_the_pictures(tmp_path: Path, sides: tuple[int, ...], size: int, expected: str) -> None:
    paths = [tmp_path / f"{i}.png" for i in range(len(sides))]
    for i, (path, side) in enumerate(zip(paths, sides, strict=True)):
        Image.new("1", (side, side + 7) if i % 2 else (side + 7, side)).save(path)
    (tmp_path / "bad.png").write_bytes(b"")
    chosen, reason = choose_size([*paths, tmp_path / "bad.png"])
    assert chosen == size
    assert expected in reason


def test_summary(root: Path, cache: Path) -> None:
    everything(root)
    Image.new("RGBA", (30, 50), (1, 2, 3, 4)).save(root / "unlabeled" / "z.png")
    (root / "notes.txt").write_text("")
    lines = load(root, cache=cache).summary()
    assert lines == [
        "2 classes: cat (2), dog (1)",
        "3 labelled and 3 unlabelled training pictures, 1 for validation, 2 for test",
        "Pictures of 10×12 to 30×50 pixels, cropped to 32×32 in colour, because their median shorter side is 10, and "
        "32 is the smallest automatic size",
        "Imbalance: cat has 2.0 times as many labels as dog",
        "Put on white, because of transparent pixels: 1",
        "Both in the training and in the test set: 1 (test/cat/h.png = unlabeled/e.png)",
        "Other files, ignored: 1 × .txt",
        f"Skipped, because they have no label: 1 in {root / 'test'}",
    ]
    assert "as requested" in load(root, size=8, cache=cache).summary()[2]


def test_a_notice_about_the_cache_is_in_the_summary(root: Path, cache: Path) -> None:
    cache.write_text("a file")
    pictures = load(write_pictures(root, "cat/a.png", "dog/b.png"), size=8, cache=cache)
    assert pictures.notice is not None
    assert pictures.summary()[-1] == pictures.notice


def test_the_users_cache_is_used_when_none_is_given(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CERTUS_CACHE", str(tmp_path / "own"))
    load(write_pictures(root, "cat/a.png", "dog/b.png"), size=8)
    assert list((tmp_path / "own").rglob("*.npy"))


def test_the_example(root: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*arguments: str) -> None:
        monkeypatch.setattr(sys, "argv", [str(EXAMPLE), *arguments])
        runpy.run_path(str(EXAMPLE), run_name="__main__")

    run(str(root), "--labels", "20")
    pictures = load(root, size=8, cache=cache)
    data = pictures.dataset
    assert data.classes == tuple("0123456789")
    assert torch.bincount(data.train.labels[data.train.labels >= 0]).tolist() == [2] * 10
    assert (len(data.train), len(data.test)) == (1257, 540)
    assert data.shape == (1, 8, 8)
    assert pictures.duplicates == ()
    with pytest.raises(SystemExit, match="exists already"):
        run(str(root))
    for labels in ("5", "15", "0", "2000"):
        with pytest.raises(SystemExit, match="multiple of 10"):
            run(str(root / "new"), "--labels", labels)
