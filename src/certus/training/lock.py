"""One process at a time trains in a run folder.

While it does, it holds a lock on the file `.lock` in the folder, which names it. The system releases the lock when the
process ends, even if it is killed. Where a file cannot be locked (some network folders, systems without `fcntl`), a
file `.claim` is the lock: one that a killed process left is removed by the next process on the same machine; on
another machine the error says what to remove.
"""

from __future__ import annotations

import errno
import json
import os
import platform
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from certus.errors import CertusError, UsageError
from certus.writing import is_running, make_folder, naming

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

NAME, CLAIM = ".lock", ".claim"
NO_LOCKS = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL}
PATIENCE = 20  # times 50 ms, for a process that has the lock and has not written its name yet


class Busy(CertusError):
    """Another process trains in this folder."""


@dataclass(frozen=True)
class Lock:
    folder: Path
    path: Path
    handle: int
    thread: int

    def check(self) -> None:
        """Refuse to go on in a folder that is not the one in which the run was begun."""
        if not is_at(self.handle, self.path):
            raise CertusError(
                f"{self.folder} was removed, moved or replaced while it was being trained, so nothing more can be "
                "saved there. If you have it elsewhere, continue it there with `resume`."
            )


HELD: dict[Path, Lock] = {}  # by this process


@contextmanager
def locked(folder: Path) -> Iterator[Lock]:
    """Hold the lock of a run folder, which is made if it is not there. The thread that holds it may ask again."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file, not a folder: give another `out`.")
    key = folder.resolve()
    held = HELD.get(key)
    if held and held.thread == threading.get_ident():
        yield held
        return
    made = make_folder(folder)
    try:
        lock = HELD[key] = Lock(folder, *acquire(folder), threading.get_ident())
        try:
            yield lock
        finally:
            del HELD[key]
            release(lock)
    finally:
        with suppress(OSError):
            for path in made:  # if nothing came of it
                path.rmdir()


def release(lock: Lock) -> None:
    with suppress(OSError):
        if is_at(lock.handle, lock.path):
            lock.path.unlink()
    os.close(lock.handle)


def acquire(folder: Path) -> tuple[Path, int]:
    """The lock file, and its handle, which must stay open."""
    path = folder / NAME
    with naming(path):
        while True:
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            mine = take(handle)
            if mine is False:
                os.close(handle)
                raise busy(folder, path)
            if mine and is_at(handle, path):  # else its last holder has just removed it
                return path, signed(path, handle)
            os.close(handle)
            if mine is None:
                path.unlink(missing_ok=True)
                return claim(folder)


def take(handle: int) -> bool | None:
    """Whether the file could be locked; None where there are no locks."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as e:
        if e.errno in NO_LOCKS:
            return None
        raise
    return True


def claim(folder: Path) -> tuple[Path, int]:
    """Where there are no locks: a file that only one process can make."""
    path = folder / CLAIM
    while True:
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        except FileExistsError:
            holder = named(path)
            if holder is None or holder[1] != platform.node() or is_running(holder[0]):
                raise busy(folder, path, f" If that process is gone, remove {path}.") from None
            path.unlink(missing_ok=True)
        else:
            return path, signed(path, handle)


def signed(path: Path, handle: int) -> int:
    """The lock file with the name of this process in it."""
    try:
        os.ftruncate(handle, 0)
        os.write(handle, json.dumps([os.getpid(), platform.node()]).encode())
    except BaseException:
        with suppress(OSError):
            path.unlink()
        os.close(handle)
        raise
    return handle


def is_at(handle: int, path: Path) -> bool:
    """Whether an open file is the one that has this name now."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except OSError:
        return False


def named(path: Path) -> tuple[int, str] | None:
    """The process and the machine that a lock file names."""
    try:
        process, machine = json.loads(path.read_bytes())
        return int(process), str(machine)
    except (OSError, ValueError, TypeError):
        return None


def busy(folder: Path, path: Path, remedy: str = "") -> Busy:
    for _ in range(PATIENCE):
        if holder := named(path):
            return Busy(f"{folder} is being trained by process {holder[0]} on {holder[1]}.{remedy}")
        time.sleep(0.05)
    return Busy(f"{folder} is being trained by another process.{remedy}")
