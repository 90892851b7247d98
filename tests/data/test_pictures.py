"""A folder of pictures becomes a data set, in each layout; what is wrong with it is said in one sentence."""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from certus.data.decode import choose_size, decode
from certus.data.pictures import Listing, Pictures, load, scan
from certus.errors import UsageError

EXAMPLE = Path(__file__).parents[1] / "examples" / "digits_as_pictures.py"


def write(root: Path, *files: str) -> Path:
    """A different picture for each name; a name with `=` is a copy of another's content."""
    for file in files:
        name, _, twin = file.partition("=")
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        seed = sum(map(ord, twin or name)) * 1000 + len(twin or name)
        Image.fromarray(np.random.default_rng(seed).integers(0, 256, (12, 10, 3), dtype=np.uint8)).save(path)
    return root


def table(root: Path, text: str, encoding: str = "utf-8") -> Path:
    root.mkdir(exist_ok=True)
    (root / "labels.csv").write_text(text, encoding=encoding)
    return root


def entries(part: tuple[tuple[Path, str | None], ...] | None) -> dict[str, str | None] | None:
    return None if part is None else {path.as_posix(): label for path, label in part}


def error(root: Path) -> str:
    with pytest.raises(UsageError) as failed:
        scan(root)
    text = str(failed.value)
    assert text.endswith(".")
    assert "\n" not in text
    return text


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "photos"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.mark.parametrize("unlabelled", ["unlabeled", "unlabelled", "Unlabeled"])
def test_a_folder_per_class(root: Path, unlabelled: str) -> None:
    found = scan(write(root, "dog/b.png", "dog/a.jpg", "cat/old/c.PNG", f"{unlabelled}/x/u.webp"))
    assert found.layout == "folders"
    assert found.classes == ("cat", "dog")
    assert entries(found.train) == {
        "cat/old/c.PNG": "cat", "dog/a.jpg": "dog", "dog/b.png": "dog", f"{unlabelled}/x/u.webp": None,
    }  # fmt: skip
    assert (found.validation, found.test, found.notes, found.others) == (None, None, (), {})
    assert [path for path, _ in found.train] == sorted(path for path, _ in found.train)


def test_held_out_folders_beside_the_classes(root: Path) -> None:
    found = scan(write(root, "cat/a.png", "dog/b.png", "val/cat/c.png", "test/dog/d.png", "test/unlabeled/e.png"))
    assert found.layout == "folders"
    assert entries(found.train) == {"cat/a.png": "cat", "dog/b.png": "dog"}
    assert entries(found.validation) == {"val/cat/c.png": "cat"}
    assert entries(found.test) == {"test/dog/d.png": "dog", "test/unlabeled/e.png": None}
    assert found.notes == (f"Left out, because they have no label: 1 in {root / 'test'}",)


@pytest.mark.parametrize("validation", ["val", "valid", "validation", "Val"])
def test_parts(root: Path, validation: str) -> None:
    files = ("train/cat/a.png", "train/dog/b.png", "train/unlabeled/u.png", f"{validation}/dog/c.png", "test/cat/d.png")
    found = scan(write(root, *files, "unlabeled/v.png"))
    assert found.layout == "parts"
    assert entries(found.train) == {
        "train/cat/a.png": "cat", "train/dog/b.png": "dog", "train/unlabeled/u.png": None, "unlabeled/v.png": None,
    }  # fmt: skip
    assert entries(found.validation) == {f"{validation}/dog/c.png": "dog"}
    assert entries(found.test) == {"test/cat/d.png": "cat"}


def test_parts_with_tables(root: Path) -> None:
    write(root, "train/a.png", "train/b.png", "train/more/c.png", "test/cat/d.png")
    table(root / "train", "file,label\na.png,cat\nmore/c.png,dog\n")
    found = scan(root)
    assert found.layout == "parts"
    assert entries(found.train) == {"train/a.png": "cat", "train/b.png": None, "train/more/c.png": "dog"}
    assert entries(found.test) == {"test/cat/d.png": "cat"}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_a_table(root: Path, encoding: str) -> None:
    write(root, "a.png", "b, c.png", "in/d.png", "in/e.png", "f.png")
    rows = (
        "label,note,file",
        'Kätzchen,"x, y",a.png',
        'dog,,"b, c.png"',
        "",
        r"dog,,in\d.png",
        "dog,, ./in/d.png",
        ",,f.png",
    )
    text = "\r\n".join(rows)
    found = scan(table(root, text, encoding))
    assert found.layout == "table"
    assert found.classes == ("Kätzchen", "dog")
    assert entries(found.train) == {
        "a.png": "Kätzchen", "b, c.png": "dog", "f.png": None, "in/d.png": "dog", "in/e.png": None,
    }  # fmt: skip
    assert found.notes == ()
    assert found.others == {}


def test_a_table_speaks_for_class_folders_too(root: Path) -> None:
    write(root, "cat/a.png", "cat/b.png", "dog/c.png", "dog/d.png")
    found = scan(table(root, "file,label\ncat/a.png,tabby\ndog/c.png,collie\n"))
    assert found.layout == "table"
    assert found.classes == ("collie", "tabby")
    assert entries(found.train)["cat/b.png"] is None  # type: ignore[index]
    assert found.notes == ("Unlabelled, because labels.csv alone gives labels: 2 in cat, dog",)


def test_a_table_at_the_top_may_speak_of_every_part(root: Path) -> None:
    write(root, "train/a.png", "train/b.png", "train/u.png", "test/c.png", "val/cat/d.png")
    found = scan(table(root, "file,label\ntrain/a.png,cat\ntrain/b.png,dog\ntest/c.png,dog\n"))
    assert entries(found.train) == {"train/a.png": "cat", "train/b.png": "dog", "train/u.png": None}
    assert entries(found.test) == {"test/c.png": "dog"}
    assert entries(found.validation) == {"val/cat/d.png": "cat"}


def test_what_is_not_a_picture(root: Path) -> None:
    write(root, "cat/a.png", "dog/b.png", "dog/.hidden.png", ".git/c.png")
    for name in ("cat/notes.txt", "cat/IMG.HEIC", "dog/img.heic", "README", ".DS_Store"):
        (root / name).write_text("")
    (root / "owl").mkdir()
    (root / "test" / "cat").mkdir(parents=True)
    found = scan(root)
    assert entries(found.train) == {"cat/a.png": "cat", "dog/b.png": "dog"}
    assert found.others == {".txt": 1, ".heic": 2, "no ending": 1}
    assert found.notes == ("Folders without pictures: owl/, test/, test/cat/",)
    assert found.test is None


def test_loose_pictures_count_as_unlabelled(root: Path) -> None:
    found = scan(write(root, "cat/a.png", "dog/b.png", "c.png"))
    assert entries(found.train)["c.png"] is None  # type: ignore[index]
    assert found.notes == ("Unlabelled, because they lie outside the class folders: 1",)


def test_a_class_may_be_called_train(root: Path) -> None:
    found = scan(write(root, "train/a.png", "bus/b.png", "unlabeled/c.png"))
    assert (found.layout, found.classes) == ("folders", ("bus", "train"))
    assert found.notes == ("Taken for a class, because other folders of pictures stand beside it: train/",)


@pytest.mark.parametrize("files", [("train/cat/a.png", "dog/b.png"), ("train/a.png", "dog/b.png", "test/dog/c.png")])
def test_is_it_a_part_or_a_class(root: Path, files: tuple[str, ...]) -> None:
    assert f"{root} has a folder train/ and beside it dog/" in error(write(root, *files))


def test_links_are_followed_but_not_in_circles(root: Path, tmp_path: Path) -> None:
    write(tmp_path / "elsewhere", "a.png")
    write(root, "dog/b.png")
    (root / "cat").symlink_to(tmp_path / "elsewhere")
    (root / "dog" / "again").symlink_to(root)
    (root / "dog" / "gone.png").symlink_to(root / "nothing.png")
    assert entries(scan(root).train) == {"cat/a.png": "cat", "dog/b.png": "dog", "dog/gone.png": "dog"}


def test_errors_of_the_folder(root: Path, tmp_path: Path) -> None:
    assert error(root) == f"There is no folder {root}."
    (tmp_path / "file.png").write_text("")
    assert error(tmp_path / "file.png") == f"{tmp_path / 'file.png'} is not a folder."
    root.mkdir()
    assert error(root) == f"There is no PNG, JPEG, WebP, BMP, TIFF or GIF picture in {root}."
    (root / "a.heic").write_text("")
    assert "(but 1 × .heic)" in error(root)
    assert f"No training picture in {root} has a label" in error(write(root, "a.png", "unlabeled/b.png"))
    assert f"All labels in {root} are 'cat'" in error(write(root, "cat/c.png"))


def test_a_folder_too_high(root: Path) -> None:
    assert f"or give {root / 'all'}" in error(write(root, "all/cat/a.png", "all/dog/b.png"))


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (("val/cat/c.png", "valid/cat/d.png"), "has two folders for validation, val/ and valid/"),
        (("test/owl/c.png", "test/cat/d.png"), "has pictures of owl, but no labelled training picture"),
        (("test/c.png",), "has a label: it needs a folder per class, or a labels.csv"),
    ],
)
def test_errors_of_the_parts(root: Path, files: tuple[str, ...], said: str) -> None:
    assert said in error(write(root, "cat/a.png", "dog/b.png", *files))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("file,label\na.png,cat\nx.png,dog\ny.png,dog\nz/z.png,dog\nw.png,cat\n",
         "names files that are not there, relative to its own folder: x.png, y.png, z/z.png and 1 more."),
        ("file,label\n../a.png,cat\n", "names files that are not there"),
        ("name,class\na.png,cat\n", "begins with 'name,class': its first line must be file,label"),
        ("file;label\na.png;cat\n", "begins with 'file;label'"),
        ("", "begins with ''"),
        ("file,label\na.png,cat\nb.png,dog\na.png,dog\n", "gives a.png two labels, 'cat' and 'dog' (line 4)."),
        ("file,label\na.png,cat\nb.png\n", "has 1 columns in line 3, but 2 in the first."),
        ("file,label\nn.txt,cat\n", "names n.txt in line 2, which is not a PNG"),
        ("file,label\na.png,\n", "has a label"),
        ("file,label\na.png,cat\nb.png,cat\n", "are 'cat'"),
    ],
)  # fmt: skip
def test_errors_of_the_table(root: Path, text: str, said: str) -> None:
    write(root, "a.png", "b.png")
    (root / "n.txt").write_text("")
    assert said in error(table(root, text))


def test_a_table_that_is_not_text(root: Path) -> None:
    write(root, "a.png")
    assert "is not UTF-8 text" in error(table(root, "file,label\na.png,Kätzchen\n", "latin-1"))
    (root / "labels.csv").unlink()
    (root / "labels.csv").symlink_to(root / "nothing")
    assert "cannot be read as a table" in error(root)


def test_two_tables(root: Path) -> None:
    write(root, "train/a.png", "train/b.png")
    table(root / "train", "file,label\na.png,cat\nb.png,dog\n")
    assert "There is a labels.csv both in" in error(table(root, "file,label\n"))


def everything(root: Path) -> Path:
    write(root, "cat/a.png", "cat/b.png", "dog/c.png", "unlabeled/d.png", "unlabeled/e.png", "val/dog/f.png")
    return write(root, "test/dog/g.png", "test/cat/h.png=unlabeled/e.png", "test/unlabeled/i.png")


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
    pictures = load(write(root, "cat/a.png", "dog/b.png"), size=8, cache=cache)
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
    write(root, "cat/a.png", "dog/b.png", "test/dog/c.png")
    with Image.open(root / "dog/b.png") as image:
        image.save(root / "test/dog/d.bmp")
    assert load(root, size=8, cache=cache).duplicates == ((Path("dog/b.png"), Path("test/dog/d.bmp")),)


def test_unreadable_pictures_are_skipped_up_to_one_in_twenty(root: Path, cache: Path) -> None:
    write(root, *(f"{'cat' if i % 2 else 'dog'}/{i}.png" for i in range(19)))
    (root / "cat" / "1.png.png").write_bytes(b"")
    pictures = load(root, size=8, cache=cache)
    assert pictures.skipped == ((Path("cat/1.png.png"), "the file is empty"),)
    assert Path("cat/1.png.png") not in pictures.files["train"]
    check(pictures, root)
    lines = pictures.summary()
    at = lines.index("Left out, because they cannot be read: 1")
    assert lines[at + 1] == "  cat/1.png.png: the file is empty"
    (root / "cat" / "2.png").write_bytes(b"hello")
    with pytest.raises(
        UsageError, match=r"^2 of the 21 pictures in .* cannot be read, more than 5%: .*2\.png \(it is not"
    ):
        load(root, size=8, cache=cache)


def test_a_long_list_of_unreadable_pictures_is_cut(root: Path, cache: Path) -> None:
    write(root, *(f"{'cat' if i % 2 else 'dog'}/{i}.png" for i in range(250)))
    for i in range(11):
        (root / "dog" / f"bad{i:02}.png").write_bytes(b"")
    pictures = load(root, size=8, cache=cache)
    assert len(pictures.skipped) == 11
    listed = [line for line in pictures.summary() if line.startswith("  ")]
    assert listed[-1] == "  and 1 more"
    assert len(listed) == 11


def test_a_class_of_unreadable_pictures(root: Path, cache: Path) -> None:
    write(root, *(f"{'cat' if i % 2 else 'dog'}/{i}.png" for i in range(30)), "owl/a.png")
    (root / "owl" / "a.png").write_bytes(b"")
    with pytest.raises(UsageError, match="None of the labelled training pictures of owl"):
        load(root, size=8, cache=cache)


@pytest.mark.parametrize("size", [0, 7, 1025, -64])
def test_a_senseless_size(root: Path, cache: Path, size: int) -> None:
    with pytest.raises(UsageError, match=f"--size must be between 8 and 1024 pixels, but is {size}"):
        load(write(root, "cat/a.png", "dog/b.png"), size=size, cache=cache)


@pytest.mark.parametrize(
    ("sides", "size", "said"),
    [
        ((8, 9, 10), 32, "median shorter side is 9, and 32 is the smallest that is chosen unasked"),
        ((40, 40, 500), 48, "median shorter side is 40, and 48 is the nearest of 32, 48, 64, 96, 128"),
        ((20, 60, 61), 64, "median shorter side is 60, and 64 is the nearest"),
        ((90, 1080, 2000), 128, "median shorter side is 1,080, and 128 is the largest that is chosen unasked"),
    ],
)
def test_the_size_is_chosen_from_the_pictures(tmp_path: Path, sides: tuple[int, ...], size: int, said: str) -> None:
    paths = [tmp_path / f"{i}.png" for i in range(len(sides))]
    for i, (path, side) in enumerate(zip(paths, sides, strict=True)):
        Image.new("1", (side, side + 7) if i % 2 else (side + 7, side)).save(path)
    (tmp_path / "bad.png").write_bytes(b"")
    chosen, reason = choose_size([*paths, tmp_path / "bad.png"])
    assert chosen == size
    assert said in reason


def test_summary(root: Path, cache: Path) -> None:
    everything(root)
    Image.new("RGBA", (30, 50), (1, 2, 3, 4)).save(root / "unlabeled" / "z.png")
    (root / "notes.txt").write_text("")
    lines = load(root, cache=cache).summary()
    assert lines == [
        "2 classes: cat (2), dog (1)",
        "3 labelled and 3 unlabelled training pictures, 1 for validation, 2 for test",
        "Pictures of 10×12 to 30×50 pixels, used as 32×32 in colour, as their median shorter side is 10, and 32 is the "
        "smallest that is chosen unasked",
        "Imbalance: cat has 2.0 times as many labels as dog",
        "Laid on white, because of see-through pixels: 1",
        "Both in the training and in the test set: 1 (test/cat/h.png = unlabeled/e.png)",
        "Other files, left alone: 1 × .txt",
        f"Left out, because they have no label: 1 in {root / 'test'}",
    ]
    assert "as --size asks for" in load(root, size=8, cache=cache).summary()[2]


def test_a_notice_about_the_cache_is_in_the_summary(root: Path, cache: Path) -> None:
    cache.write_text("a file")
    pictures = load(write(root, "cat/a.png", "dog/b.png"), size=8, cache=cache)
    assert pictures.notice is not None
    assert pictures.summary()[-1] == pictures.notice


def test_the_users_cache_is_used_when_none_is_given(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CERTUS_CACHE", str(tmp_path / "own"))
    load(write(root, "cat/a.png", "dog/b.png"), size=8)
    assert list((tmp_path / "own").rglob("*.npy"))


def test_the_listing_is_immutable(root: Path) -> None:
    found = scan(write(root, "cat/a.png", "dog/b.png"))
    assert isinstance(found, Listing)
    with pytest.raises(AttributeError):
        found.layout = "x"  # type: ignore[misc]


def test_a_folder_that_cannot_be_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(root, "cat/a.png", "dog/b.png")
    real = os.scandir

    def refuse(path: str) -> object:
        if path.endswith("dog"):
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(os, "scandir", refuse)
    assert error(root) == f"The folder {root / 'dog'} cannot be read: Permission denied."


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
