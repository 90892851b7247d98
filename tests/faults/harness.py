"""Disks that fail: every operation that changes the disk is counted, and a command is replayed with the n-th failing.

An operation is to open a file for writing, to write, to flush to the disk, to rename, to link, to make or remove a
file or a folder, and to cut a file. There are two failures:

kill   the process ends before the n-th operation. It is a real process that ends without any `finally`.
full   the n-th operation and every later one that needs room fails; half of a write is on the disk.

A command runs in a process forked from a server that has imported certus and has done nothing else, so that a replay
costs what the command costs, not the start of Python.
"""

from __future__ import annotations

import builtins
import errno
import io
import itertools
import multiprocessing
import os
import random
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FULL = os.environ.get("CERTUS_FAULTS") == "full"  # the length of `make faults`
SEED = int(os.environ.get("CERTUS_FAULTS_SEED", "0"))
KILLED = 137
NEED_ROOM = ("open", "write", "flush", "mkdir", "cut")
PRELOADED = ["certus.cli.main", "certus.api", "certus.cli.train", "certus.cli.predict", "certus.cli.report"]
PRELOADED += [
    "certus.data.digits",
    "certus.data.moons",
    "torch._dynamo",
    "sklearn.datasets",
    "pyarrow.parquet",
    "PIL.Image",
    "__main__",
    "pytest",
    "certus.report.report",
    "matplotlib.backends.backend_agg",
    "matplotlib.backends.backend_svg",
]


@dataclass(frozen=True)
class Outcome:
    code: int
    operations: tuple[tuple[str, str], ...]  # (kind, file), those before a kill
    err: str  # what was printed on the error stream
    value: Any = None  # what a function returned


class Disk:
    """The disk below one folder: it counts, and fails at the n-th operation."""

    def __init__(self, root: Path, failure: str = "", at: int = 0, log: str = "") -> None:
        self.root, self.failure, self.at = str(root), failure, at
        self.count = 0
        self.handles: dict[int, str] = {}
        self.log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND) if log else -1
        self.real = {name: getattr(os, name) for name in ("open", "close", "write", "fsync", "ftruncate", "replace")}
        self.real |= {name: getattr(os, name) for name in ("rename", "link", "mkdir", "unlink", "remove", "rmdir")}
        self.opened = io.open

    def meet(self, kind: str, path: str) -> None:
        """Count an operation, and fail if it is time."""
        self.count += 1
        self.real["write"](self.log, f"{kind}\t{os.path.relpath(path, self.root)}\n".encode())
        if self.count == self.at and self.failure == "kill":
            os._exit(KILLED)
        late = (self.count >= self.at and kind in NEED_ROOM) or (self.count == self.at and kind in ("rename", "link"))
        if self.failure == "full" and late:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def below(self, path: Any, folder: int | None = None) -> str:
        """The path, if it is below the root; else empty."""
        if isinstance(path, int):
            return self.handles.get(path, "")
        base = Path.cwd() if folder is None else Path(self.handles.get(folder, "/"))
        text = str(base / os.fsdecode(path))
        return text if text == self.root or text.startswith(self.root + os.sep) else ""

    def install(self) -> None:
        names = {"mkdir": "mkdir", "unlink": "remove", "remove": "remove", "rmdir": "remove"}
        for name, kind in names.items():
            setattr(os, name, self.on_path(self.real[name], kind))
        for name in ("replace", "rename"):
            setattr(os, name, self.on_path(self.real[name], "rename"))
        os.link = self.on_path(self.real["link"], "link")
        for name, kind in {"write": "write", "fsync": "flush", "ftruncate": "cut"}.items():
            setattr(os, name, self.on_handle(self.real[name], kind))
        os.open, os.close = self.open_handle, self.close_handle
        io.open = builtins.open = self.open_file  # type: ignore[assignment]

    def on_path(self, real: Callable[..., Any], kind: str) -> Callable[..., Any]:
        def call(path: Any, *args: Any, dir_fd: int | None = None, **more: Any) -> Any:
            if there := self.below(path, dir_fd):
                self.meet(kind, there)
            if dir_fd is not None:
                more["dir_fd"] = dir_fd
            return real(path, *args, **more)

        return call

    def on_handle(self, real: Callable[..., Any], kind: str) -> Callable[..., Any]:
        def call(handle: Any, *args: Any) -> Any:
            if there := self.handles.get(handle if isinstance(handle, int) else handle.fileno(), ""):
                self.meet(kind, there)
                if kind == "flush":
                    return None  # a kill loses nothing that was written, flushed or not
            return real(handle, *args)

        return call

    def open_handle(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        there = self.below(path, dir_fd)
        if there and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            self.meet("open", there)
        handle = self.real["open"](path, flags, mode, dir_fd=dir_fd)
        if there:
            self.handles[handle] = there
        return handle

    def close_handle(self, handle: int) -> None:
        self.handles.pop(handle, None)
        self.real["close"](handle)

    def open_file(self, file: Any, mode: str = "r", *args: Any, **more: Any) -> Any:
        there = self.below(file)
        if not there or not set(mode) & set("wxa+"):
            return self.opened(file, mode, *args, **more)
        if not isinstance(file, int):
            self.meet("open", there)
        return Written(self, there, self.opened(file, mode, *args, **more))


class Written(io.BufferedIOBase):
    """A file that is open for writing."""

    def __init__(self, disk: Disk, path: str, file: Any) -> None:
        self.disk, self.path, self.file = disk, path, file
        disk.handles[file.fileno()] = path

    def write(self, data: Any) -> int:
        try:
            self.disk.meet("write", self.path)
        except OSError:
            self.file.write(bytes(memoryview(data).cast("B")[: len(memoryview(data).cast("B")) // 2]))
            raise
        return self.file.write(data)

    def close(self) -> None:
        if not self.file.closed:
            self.disk.handles.pop(self.file.fileno(), None)
            self.file.close()
        super().close()

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return self.file.seekable()

    def seek(self, *args: Any) -> int:
        return self.file.seek(*args)

    def tell(self) -> int:
        return self.file.tell()

    def flush(self) -> None:
        if not self.file.closed:
            self.file.flush()

    def fileno(self) -> int:
        return self.file.fileno()


def forked(root: Path, call: Callable[..., Any], *args: Any, failure: str = "", at: int = 0) -> Outcome:
    """Call a function in a process of its own, on a disk that fails at the n-th operation below `root`."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    log, err = root.parent / "operations.log", root.parent / "errors.txt"
    for file in (log, err):
        file.unlink(missing_ok=True)
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=child, args=(sender, root, call, args, failure, at, str(log), str(err)))
    process.start()
    sender.close()
    try:
        code, value = receiver.recv()
    except EOFError:
        code, value = None, None
    process.join()
    receiver.close()
    exit_code = process.exitcode if code is None else code
    assert exit_code is not None
    process.close()
    lines = log.read_text().splitlines() if log.exists() else []
    operations = tuple((kind, file) for kind, _, file in (line.partition("\t") for line in lines))
    return Outcome(exit_code, operations, err.read_text() if err.exists() else "", value)


def child(
    sender: Any, root: Path, call: Callable[..., Any], args: Sequence[Any], failure: str, at: int, log: str, err: str
) -> None:
    import torch

    torch.set_num_threads(1)
    handle = os.open(err, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(handle, stream)
    sys.stdout, sys.stderr = (open(n, "w", closefd=False) for n in (1, 2))  # noqa: SIM115 (handles have no path)
    Disk(root, failure, at, log).install()
    value = call(*args)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    sender.send((value if isinstance(value, int) else 0, value))


def command(folder: str, words: Sequence[str]) -> int:
    """`certus WORDS` in a folder; the exit code."""
    from certus.cli.main import main

    os.chdir(folder)
    return main(list(words))


def drawn_once(folder: str, words: Sequence[str]) -> int:
    """`command`, but the n-th picture is drawn by the first process that needs it, and the others take its bytes.

    They are kept outside the folder, where no operation is counted. To draw them takes most of a report's time.
    """
    from matplotlib.figure import Figure

    draw, numbers, kept = Figure.savefig, itertools.count(), Path(folder).parent / "drawn"
    kept.mkdir(exist_ok=True)

    def savefig(self: Figure, target: Any, **settings: Any) -> None:
        file, text = kept / str(next(numbers)), isinstance(target, io.TextIOBase)
        if not file.exists():
            drawn = io.StringIO() if text else io.BytesIO()
            draw(self, drawn, **settings)
            value = drawn.getvalue()
            file.write_bytes(value.encode() if isinstance(value, str) else value)
        target.write(file.read_text() if text else file.read_bytes())

    Figure.savefig = savefig  # type: ignore[method-assign]
    return command(folder, words)


def chosen(count: int, few: int) -> list[int]:
    """All of 1 … count at full length, else a few of them; the same seed gives the same."""
    everything = range(1, count + 1)
    return list(everything) if FULL else sorted(random.Random(SEED).sample(everything, min(few, count)))


def unflushed(operations: Iterable[tuple[str, str]]) -> list[str]:
    """Files that were renamed, or folders that files were renamed in, before they were flushed to the disk."""
    dirty: set[str] = set()
    found = []
    for kind, path in operations:
        if Path(path).name == ".lock":
            continue  # nobody reads it after a power cut
        if kind in ("open", "write", "cut"):
            dirty.add(path)
        elif kind in ("flush", "remove"):
            dirty.discard(path)
        elif kind == "rename":
            moved = {p for p in dirty if p == path or p.startswith(path + os.sep)}
            found += sorted(moved)
            dirty = dirty - moved | {str(Path(path).parent)}
    return found + sorted(dirty)
