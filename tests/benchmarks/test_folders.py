"""benchmarks/folders.py: which pictures are labelled, unlabelled and for test in the folders that it draws."""

from __future__ import annotations

import argparse
from pathlib import Path

import folders
import numpy as np
import pytest
from PIL import Image

from certus.data import load
from certus.data.pictures import load as load_pictures
from certus.errors import UsageError

CLASSES = {"ant": 20, "bee": 20, "cat": 6}


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Pictures of three classes, one with few, and odd files that are not drawn."""
    rng = np.random.default_rng(0)
    root = tmp_path / "photos"
    for name, count in CLASSES.items():
        (root / name).mkdir(parents=True)
        for i in range(count):
            ending = ("png", "JPG", "webp")[i % 3]
            Image.fromarray(rng.integers(0, 256, (9, 8, 3), np.uint8)).save(root / name / f"{i}.{ending}")
    Image.new("RGB", (8, 8), "red").save(root / "ant" / ".hidden.png")
    for name, content in {"notes.txt": b"ants", "broken.jpg": b"no picture", "empty.png": b""}.items():
        (root / "ant" / name).write_bytes(content)
    (root / "bee" / "copy of an ant.png").write_bytes(picture(root))
    (root / ".git").mkdir()
    (root / "bee" / "more").mkdir()
    (root / "bee" / "18.png").rename(root / "bee" / "more" / "18.png")
    (root / "cat" / "gone.png").symlink_to(root / "nowhere.png")
    return root


def picture(root: Path) -> bytes:
    return (root / "ant" / "0.png").read_bytes()


def contents(folder: Path, pattern: str) -> set[bytes]:
    files = list(folder.glob(pattern))
    found = {file.read_bytes() for file in files}
    assert len(found) == len(files)
    return found


def test_every_readable_picture_is_in_one_part(photos: Path, tmp_path: Path) -> None:
    folder = folders.folder(tmp_path, "insects", str(photos), labels=4, seed=0)
    parts = [contents(folder, f"train/{name}/*") for name in (*CLASSES, "unlabelled")] + [contents(folder, "test/*/*")]
    assert len(set().union(*parts)) == sum(map(len, parts)) == sum(CLASSES.values())
    assert picture(photos) not in contents(folder, "t*/bee/*")
    assert [len(contents(folder, f"train/{name}/*")) for name in CLASSES] == [4, 4, 2]  # half of the few
    assert [len(contents(folder, f"test/{name}/*")) for name in CLASSES] == [6, 6, 1]
    for name in CLASSES:
        assert contents(folder, f"t*/{name}/*") <= {file.read_bytes() for file in photos.glob(f"{name}/**/[0-9]*")}


def test_labels_are_among_those_of_a_larger_number_and_the_test_part_is_always_the_same(
    photos: Path, tmp_path: Path
) -> None:
    drawn = {(n, seed): folders.folder(tmp_path, "insects", str(photos), n, seed) for n in (1, 3, 7) for seed in (0, 1)}
    labelled = {key: contents(folder, "train/[a-c]*/*") for key, folder in drawn.items()}
    for seed in (0, 1):
        assert labelled[1, seed] < labelled[3, seed] < labelled[7, seed]
    assert labelled[3, 0] != labelled[3, 1]
    tests = [{f.relative_to(folder): f.read_bytes() for f in folder.glob("test/*/*")} for folder in drawn.values()]
    assert all(test == tests[0] for test in tests)


def test_a_draw_is_read_by_certus(photos: Path, tmp_path: Path) -> None:
    found = load_pictures(folders.folder(tmp_path, "insects", str(photos), 2, 0), cache=tmp_path / "decoded")
    assert found.dataset.classes == tuple(CLASSES)
    labels = found.dataset.train.labels
    assert labels[labels >= 0].bincount().tolist() == [2, 2, 2]
    assert (labels < 0).sum() == 46 - 13 - 6
    assert len(found.dataset.test) == 13
    assert not found.duplicates
    assert not found.skipped


def test_files_are_links_and_are_drawn_once(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = folders.folder(tmp_path, "insects", str(photos), 2, 0)
    inodes = {file.stat().st_ino for file in photos.rglob("*.*") if file.is_file()}
    assert {file.stat().st_ino for file in folder.rglob("*.*")} <= inodes
    assert [path.name for path in folder.parent.iterdir()] == ["labels-2"]
    monkeypatch.setattr(folders, "draw", lambda *_: pytest.fail("drawn again"))
    assert folders.folder(tmp_path, "insects", str(photos), 2, 0) == folder


def test_without_links_files_are_copied(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise OSError

    monkeypatch.setattr(Path, "hardlink_to", refused)
    linked = folders.folder(tmp_path / "a", "insects", str(photos), 2, 0)
    assert all(file.is_symlink() for file in linked.rglob("*.*"))
    monkeypatch.setattr(Path, "symlink_to", refused)
    copied = folders.folder(tmp_path / "b", "insects", str(photos), 2, 0)
    assert not any(file.is_symlink() for file in copied.rglob("*.*"))
    assert contents(linked, "*/*/*") == contents(copied, "*/*/*")


def test_a_data_set_by_name_becomes_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "MOST_TEST", 50)
    monkeypatch.setattr(folders, "MOST_UNLABELLED", 30)
    folder, data = folders.folder(tmp_path, "digits", None, 3, 0), load("digits")
    files = list(folder.glob("train/7/*"))
    digits = data.train.images[data.train.labels == 7].numpy()[:, 0]
    assert len(files) == 3
    for file in files:
        assert (np.asarray(Image.open(file)) == digits).all((1, 2)).any()
    assert len(list(folder.glob("train/unlabelled/*"))) == 30
    tests = list(folder.glob("test/*/*"))
    assert 40 <= len(tests) <= 50
    known = {image.tobytes() for image in data.test.images.numpy()}
    assert {np.asarray(Image.open(file)).tobytes() for file in tests} <= known


def test_what_cannot_be_drawn_from_is_refused(photos: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="There is no directory"):
        folders.folder(tmp_path, "x", str(tmp_path / "none"), 1, 0)
    with pytest.raises(UsageError, match=r"two classes or more of 4 pictures or more, but has ant"):
        folders.folder(tmp_path, "x", str(one_class(photos)), 1, 0)
    (photos / "Unlabeled").mkdir()
    with pytest.raises(UsageError, match="has no labels"):
        folders.folder(tmp_path, "y", str(photos), 1, 0)


def one_class(photos: Path) -> Path:
    (photos.parent / "alone").mkdir()
    (photos.parent / "alone" / "ant").symlink_to(photos / "ant")
    return photos.parent / "alone"


@pytest.mark.parametrize("text", ["flowers", "=dir", "a/b=dir", "flowers=", ".x=dir", "cifar10=dir"])
def test_a_set_of_photographs_has_a_name_and_a_directory(text: str) -> None:
    assert folders.named("flowers=a=b") == ("flowers", "a=b")
    with pytest.raises(argparse.ArgumentTypeError, match="NAME=DIR"):
        folders.named(text)


@pytest.mark.parametrize("text", ["0", "1,a", "", "-1", "2.5"])
def test_numbers_of_labels_are_whole_and_positive(text: str) -> None:
    assert folders.numbers("1, 25") == [1, 25]
    with pytest.raises(argparse.ArgumentTypeError, match="above 0"):
        folders.numbers(text)
