"""Every file is written whole or not at all, and an error names it."""

from __future__ import annotations

import ast
import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

import certus
from certus import writing
from certus.writing import append, make_folder, part_of, put, put_json


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def half(file) -> None:  # type: ignore[no-untyped-def]
    file.write(b"half")
    full()


def test_text_bytes_a_function_and_json(tmp_path: Path) -> None:
    put(tmp_path / "a", "ä\n\udce9")
    put(tmp_path / "b", b"\xff")
    put(tmp_path / "c", lambda file: file.write(b"written"))
    put_json(tmp_path / "d", {"x": [1]})
    assert [(tmp_path / n).read_bytes() for n in "abc"] == ["ä\n\\udce9".encode(), b"\xff", b"written"]
    assert (tmp_path / "d").read_text() == '{\n "x": [\n  1\n ]\n}\n'
    assert names(tmp_path) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("where", ["content", "fsync", "replace"])
def test_a_failed_write_keeps_the_old_file_leaves_no_other_and_is_named(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "answers.csv"
    put(path, "old")
    if where != "content":
        monkeypatch.setattr(os, where, full)
    with pytest.raises(OSError, match="No space left on device") as error:
        put(path, half if where == "content" else "new")
    assert error.value.filename == str(path)
    assert path.read_text() == "old"
    assert names(tmp_path) == ["answers.csv"]


def test_a_failed_append_leaves_the_lines_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "metrics.jsonl"
    append(path, "one\n")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match=r"metrics\.jsonl"):
            append(path, "two\n")
    append(path, "three\n")
    assert path.read_text() == "one\nthree\n"


def test_what_a_killed_writer_left_is_removed_by_the_next_and_that_of_a_living_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "page [1].html"
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    for pid in (gone.pid, os.getppid()):
        with monkeypatch.context() as patch:
            patch.setattr(os, "getpid", lambda pid=pid: pid)
            part_of(path).write_text("half a page")
    other = part_of(tmp_path / "other").with_name(f".other.{writing.HOST}.{gone.pid}.00000000.part")
    other.write_text("of another file")
    put(path, "page")
    left = names(tmp_path)
    assert len(left) == 3
    assert {path.name, other.name} < set(left)
    assert str(os.getppid()) in next(name for name in left if name.startswith(".page"))


def test_the_longest_name_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / ("ä" * 125 + ".csv")
    put(path, "x")
    assert path.read_text() == "x"


def test_a_folder_that_cannot_be_flushed_is_no_error_but_a_broken_disk_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = errno.EINVAL

    def sync(handle: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{handle}"):  # noqa: PTH112
            raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", sync)
    put(tmp_path / "a", "x")
    code = errno.EIO
    with pytest.raises(OSError, match="Input/output error"):
        put(tmp_path / "a", "x")


def test_folders_are_made_with_those_above_them(tmp_path: Path) -> None:
    make_folder(tmp_path / "a" / "b")
    make_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
    put(tmp_path / "file", "")
    with pytest.raises(FileExistsError, match="file"):
        make_folder(tmp_path / "file" / "b")


def test_nothing_is_written_in_another_way() -> None:
    """The functions here are the only ones that open a file for writing."""
    root = Path(certus.__file__).parent
    banned = {"write_text", "write_bytes", "savefig", "to_csv", "to_parquet", "save_file", "imsave", "rename"}
    allowed = {
        ("writing.py", "open"),
        ("checkpoint.py", "rename"),
        ("lock.py", "rename"),  # an abandoned lock is moved aside
        ("launch.py", "open"),  # the null device, in place of the screen
        ("figure.py", "savefig"),
        ("thumbnails.py", "imsave"),
    }
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            modes = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
            opens = name == "open" and any(set(mode) <= set("wxabt+") and set(mode) & set("wxa") for mode in modes)
            assert not (name in banned or opens) or (path.name, name) in allowed, f"{path}:{node.lineno}"
