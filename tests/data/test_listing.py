"""The pictures of a folder and their labels, in each layout; errors of one sentence."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from builders import write_pictures

from certus.data.decode import FORMAT_NAMES
from certus.data.listing import Listing, scan
from certus.errors import UsageError


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


@pytest.mark.parametrize("unlabelled", ["unlabeled", "unlabelled", "Unlabeled"])
def test_a_folder_per_class(root: Path, unlabelled: str) -> None:
    found = scan(write_pictures(root, "dog/b.png", "dog/a.jpg", "cat/old/c.PNG", f"{unlabelled}/x/u.webp"))
    assert found.layout == "folders"
    assert found.classes == ("cat", "dog")
    assert entries(found.train) == {
        "cat/old/c.PNG": "cat", "dog/a.jpg": "dog", "dog/b.png": "dog", f"{unlabelled}/x/u.webp": None,
    }  # fmt: skip
    assert (found.validation, found.test, found.notes, found.others) == (None, None, (), {})
    assert [path for path, _ in found.train] == sorted(path for path, _ in found.train)


def test_held_out_folders_beside_the_classes(root: Path) -> None:
    found = scan(
        write_pictures(root, "cat/a.png", "dog/b.png", "val/cat/c.png", "test/dog/d.png", "test/unlabeled/e.png")
    )
    assert found.layout == "folders"
    assert entries(found.train) == {"cat/a.png": "cat", "dog/b.png": "dog"}
    assert entries(found.validation) == {"val/cat/c.png": "cat"}
    assert entries(found.test) == {"test/dog/d.png": "dog", "test/unlabeled/e.png": None}
    assert found.notes == (f"Skipped, because they have no label: 1 in {root / 'test'}",)


@pytest.mark.parametrize("validation", ["val", "valid", "validation", "Val"])
def test_parts(root: Path, validation: str) -> None:
    files = ("train/cat/a.png", "train/dog/b.png", "train/unlabeled/u.png", f"{validation}/dog/c.png", "test/cat/d.png")
    found = scan(write_pictures(root, *files, "unlabeled/v.png"))
    assert found.layout == "parts"
    assert entries(found.train) == {
        "train/cat/a.png": "cat", "train/dog/b.png": "dog", "train/unlabeled/u.png": None, "unlabeled/v.png": None,
    }  # fmt: skip
    assert entries(found.validation) == {f"{validation}/dog/c.png": "dog"}
    assert entries(found.test) == {"test/cat/d.png": "cat"}


def test_parts_with_tables(root: Path) -> None:
    write_pictures(root, "train/a.png", "train/b.png", "train/more/c.png", "test/cat/d.png")
    table(root / "train", "file,label\na.png,cat\nmore/c.png,dog\n")
    found = scan(root)
    assert found.layout == "parts"
    assert entries(found.train) == {"train/a.png": "cat", "train/b.png": None, "train/more/c.png": "dog"}
    assert entries(found.test) == {"test/cat/d.png": "cat"}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_a_table(root: Path, encoding: str) -> None:
    write_pictures(root, "a.png", "b, c.png", "in/d.png", "in/e.png", "f.png")
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


def test_a_table_replaces_the_labels_of_class_folders(root: Path) -> None:
    write_pictures(root, "cat/a.png", "cat/b.png", "dog/c.png", "dog/d.png")
    found = scan(table(root, "file,label\ncat/a.png,tabby\ndog/c.png,collie\n"))
    assert found.layout == "table"
    assert found.classes == ("collie", "tabby")
    assert entries(found.train)["cat/b.png"] is None  # type: ignore[index]
    assert found.notes == ("Unlabelled, because only labels.csv gives labels: 2 in cat, dog",)


def test_a_table_in_the_top_folder_may_label_every_part(root: Path) -> None:
    write_pictures(root, "train/a.png", "train/b.png", "train/u.png", "test/c.png", "val/cat/d.png")
    found = scan(table(root, "file,label\ntrain/a.png,cat\ntrain/b.png,dog\ntest/c.png,dog\n"))
    assert entries(found.train) == {"train/a.png": "cat", "train/b.png": "dog", "train/u.png": None}
    assert entries(found.test) == {"test/c.png": "dog"}
    assert entries(found.validation) == {"val/cat/d.png": "cat"}


def test_files_that_are_no_pictures(root: Path) -> None:
    write_pictures(root, "cat/a.png", "dog/b.png", "dog/.hidden.png", ".git/c.png")
    for name in ("cat/notes.txt", "cat/IMG.HEIC", "dog/img.heic", "README", ".DS_Store"):
        (root / name).write_text("")
    (root / "owl").mkdir()
    (root / "test" / "cat").mkdir(parents=True)
    found = scan(root)
    assert entries(found.train) == {"cat/a.png": "cat", "dog/b.png": "dog"}
    assert found.others == {".txt": 1, ".heic": 2, "no suffix": 1}
    assert found.notes == ("Folders without pictures: owl/, test/, test/cat/",)
    assert found.test is None


def test_loose_pictures_count_as_unlabelled(root: Path) -> None:
    found = scan(write_pictures(root, "cat/a.png", "dog/b.png", "c.png"))
    assert entries(found.train)["c.png"] is None  # type: ignore[index]
    assert found.notes == ("Unlabelled, because they are outside the class folders: 1",)


def test_a_class_may_be_called_train(root: Path) -> None:
    found = scan(write_pictures(root, "train/a.png", "bus/b.png", "unlabeled/c.png"))
    assert (found.layout, found.classes) == ("folders", ("bus", "train"))
    assert found.notes == ("Read as a class, because other folders of pictures are beside it: train/",)


@pytest.mark.parametrize("files", [("train/cat/a.png", "dog/b.png"), ("train/a.png", "dog/b.png", "test/dog/c.png")])
def test_a_folder_that_may_be_a_part_or_a_class(root: Path, files: tuple[str, ...]) -> None:
    assert f"{root} has a folder train/ and beside it dog/" in error(write_pictures(root, *files))


def test_links_are_followed_but_not_in_circles(root: Path, tmp_path: Path) -> None:
    write_pictures(tmp_path / "elsewhere", "a.png")
    write_pictures(root, "dog/b.png")
    (root / "cat").symlink_to(tmp_path / "elsewhere")
    (root / "dog" / "again").symlink_to(root)
    (root / "dog" / "gone.png").symlink_to(root / "nothing.png")
    assert entries(scan(root).train) == {"cat/a.png": "cat", "dog/b.png": "dog", "dog/gone.png": "dog"}


def test_errors_of_the_folder(root: Path, tmp_path: Path) -> None:
    assert error(root) == f"There is no folder {root}."
    (tmp_path / "file.png").write_text("")
    assert error(tmp_path / "file.png") == f"{tmp_path / 'file.png'} is not a folder."
    root.mkdir()
    assert error(root) == f"There is no {FORMAT_NAMES} picture in {root}."
    (root / "a.heic").write_text("")
    assert "(only 1 × .heic)" in error(root)
    assert f"No training picture in {root} has a label" in error(write_pictures(root, "a.png", "unlabeled/b.png"))
    assert f"All labels in {root} are 'cat'" in error(write_pictures(root, "cat/c.png"))


def test_the_parent_of_the_class_folders(root: Path) -> None:
    assert f"or use the folder {root / 'all'}" in error(write_pictures(root, "all/cat/a.png", "all/dog/b.png"))


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (("val/cat/c.png", "valid/cat/d.png"), "has two folders for validation, val/ and valid/"),
        (("test/owl/c.png", "test/cat/d.png"), "has pictures of owl, but no training picture has such a label"),
        (("test/c.png",), "has a label: it needs one folder per class, or a labels.csv"),
    ],
)
def test_errors_of_the_parts(root: Path, files: tuple[str, ...], message: str) -> None:
    assert message in error(write_pictures(root, "cat/a.png", "dog/b.png", *files))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("file,label\na.png,cat\nx.png,dog\ny.png,dog\nz/z.png,dog\nw.png,cat\n",
         "lists files that do not exist (paths are relative to its folder): x.png, y.png, z/z.png and 1 more."),
        ("file,label\n../a.png,cat\n", "lists files that do not exist"),
        ("name,class\na.png,cat\n", "begins with 'name,class', but its first line must be file,label"),
        ("file;label\na.png;cat\n", "begins with 'file;label'"),
        ("", "begins with ''"),
        ("file,label\na.png,cat\nb.png,dog\na.png,dog\n", "two labels, 'cat' and 'dog' (line 4): keep one."),
        ("file,label\na.png,cat\nb.png\n", "has 1 columns in line 3, but 2 in the first."),
        ("file,label\nn.txt,cat\n", "lists n.txt in line 2, but by its suffix it is not a PNG"),
        ("file,label\na.png,\n", "has a label"),
        ("file,label\na.png,cat\nb.png,cat\n", "are 'cat'"),
    ],
)  # fmt: skip
def test_errors_of_the_table(root: Path, text: str, message: str) -> None:
    write_pictures(root, "a.png", "b.png")
    (root / "n.txt").write_text("")
    assert message in error(table(root, text))


def test_a_table_that_is_not_text(root: Path) -> None:
    write_pictures(root, "a.png")
    assert "is not UTF-8 text" in error(table(root, "file,label\na.png,Kätzchen\n", "latin-1"))
    (root / "labels.csv").unlink()
    (root / "labels.csv").symlink_to(root / "nothing")
    assert "cannot be read as a table" in error(root)


def test_two_tables(root: Path) -> None:
    write_pictures(root, "train/a.png", "train/b.png")
    table(root / "train", "file,label\na.png,cat\nb.png,dog\n")
    assert "There is a labels.csv both in" in error(table(root, "file,label\n"))


def test_the_listing_is_immutable(root: Path) -> None:
    found = scan(write_pictures(root, "cat/a.png", "dog/b.png"))
    assert isinstance(found, Listing)
    with pytest.raises(AttributeError):
        found.layout = "x"  # type: ignore[misc]


def test_a_folder_that_cannot_be_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_pictures(root, "cat/a.png", "dog/b.png")
    real = os.scandir

    def refuse(path: str) -> object:
        if path.endswith("dog"):
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(os, "scandir", refuse)
    assert error(root) == f"The folder {root / 'dog'} cannot be read: Permission denied."


def test_what_is_no_file_is_listed_and_not_opened(root: Path) -> None:
    write_pictures(root, "cat/a.png", "dog/b.png")
    os.mkfifo(root / "dog" / "pipe.png")
    assert entries(scan(root).train) == {"cat/a.png": "cat", "dog/b.png": "dog", "dog/pipe.png": "dog"}
    os.mkfifo(root / "labels.csv")
    assert error(root) == f"{root / 'labels.csv'} cannot be read as a table: it is not a regular file."
