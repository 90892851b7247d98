"""Every file that certus writes: whole or not at all, on the disk, with its name in the error.

A file is written under another name beside its final place (`.NAME.HOST.PID.….part`), flushed to the disk, and renamed.
A failed write leaves the old file and nothing else. What a killed process leaves is removed by the next write of the
same file.
"""

from __future__ import annotations

import errno
import json
import os
import platform
import re
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

Content = str | bytes | Callable[[BinaryIO], Any]  # text, bytes, or a function that writes them
HOST = "".join(c for c in platform.node() if c.isalnum() or c == "-")[:40] or "host"
UNSUPPORTED = {errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EBADF}  # some file systems cannot flush a folder


def put(path: Path, content: Content) -> None:
    """Write a file whole or not at all."""
    fresh = part_of(path)
    with naming(path):
        remove_abandoned(path)
        try:
            write_new(fresh, content)
            fresh.replace(path)
        except BaseException:
            with suppress(OSError):
                fresh.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)


def put_json(path: Path, value: Any) -> None:
    put(path, json.dumps(value, indent=1) + "\n")


def append(path: Path, line: str) -> None:
    """Add a line to a file, whole or not at all."""
    data = encoded(line)
    with naming(path), path.open("ab", buffering=0) as file:
        before = file.tell()
        try:
            if file.write(data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(file.fileno())
        except BaseException:
            with suppress(OSError):
                os.ftruncate(file.fileno(), before)
            raise
        if not before:
            sync_folder(path.parent)


def make_folder(path: Path) -> list[Path]:
    """Make a folder and those above it that are missing; those that were made, the innermost first."""
    missing = []
    while not path.is_dir():
        missing.append(path)
        path = path.parent
    for folder in reversed(missing):
        with naming(folder):
            folder.mkdir(exist_ok=True)
            sync_folder(folder.parent)
    return missing


def write_new(path: Path, content: Content) -> None:
    """Write a file in place and flush it to the disk: for files that nobody reads until they are renamed."""
    with path.open("wb") as file:
        if callable(content):
            content(file)
        else:
            file.write(encoded(content) if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())  # so that it survives a power cut


def encoded(text: str) -> bytes:
    """UTF-8. What it cannot hold, such as a byte of a file name that is not text, is written as `\\udce9`."""
    return text.encode("utf-8", "backslashreplace")


def sync_folder(folder: Path) -> None:
    """The names in a folder to the disk, where the system can do that."""
    if sys.platform == "win32":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as e:
        if e.errno not in UNSUPPORTED:
            raise
    finally:
        os.close(handle)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """An error of the system about this file names it, not the file beside it."""
    try:
        yield
    except OSError as e:
        if e.errno is None:
            raise
        raise OSError(e.errno, e.strerror, str(path)) from None


def part_of(path: Path) -> Path:
    """The name under which this process writes a file."""
    return path.with_name(f".{path.name[:40]}.{HOST}.{os.getpid()}.{secrets.token_hex(4)}.part")


def remove_abandoned(path: Path) -> None:
    """Remove what processes of this machine that are gone have left of this file."""
    pattern = re.compile(rf"{re.escape(f'.{path.name[:40]}.{HOST}.')}(\d+)\.[0-9a-f]{{8}}\.part")
    with suppress(OSError):
        for other in path.parent.iterdir():
            if (found := pattern.fullmatch(other.name)) and not is_running(int(found[1])):
                other.unlink()


def is_running(pid: int) -> bool:
    """Whether this machine has a process of this number."""
    if sys.platform == "win32":
        return True  # cannot be asked without harm
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True
