"""One process at a time trains in a run folder: on this machine, and on all machines that share the folder.

The lock is the file `.lock` in the folder, which names its process and its machine.

- It appears whole, as a link to a file that is already written. So of two processes only one can make it, wherever they
  run.
- Its holder touches it every 15 seconds, and keeps it locked for the system (`flock`), where the file system can.
- A lock of this machine is abandoned if the system knows of no holder. A lock of another machine is abandoned if it was
  not touched for two minutes, by the clock that stamps the files of this folder.
- Whoever finds an abandoned lock removes it and makes its own.
- Before it saves, a holder checks that the lock is still its own. If not, it writes nothing more.
"""

from __future__ import annotations

import errno
import json
import os
import platform
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from certus.errors import CertusError, UsageError
from certus.writing import is_running, make_folder, naming, part_of, remove_abandoned

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

NAME = ".lock"
HEARTBEAT = 15.0  # seconds between two touches
SILENCE = 120.0  # seconds without a touch after which a lock of another machine is abandoned
NO_LOCKS = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL}
NO_LINKS = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EPERM, errno.EACCES, errno.EINVAL}
PATIENCE = 20  # times 50 ms, for a lock that has no name in it yet


class Busy(CertusError):
    """Another process trains in this folder."""


@dataclass(frozen=True)
class Lock:
    folder: Path
    path: Path
    handle: int
    thread: int

    def check(self) -> None:
        """Refuse to go on in a folder that is not the one in which the run was begun, or that others have taken."""
        if is_at(self.handle, self.path):
            return
        if named(self.path):
            raise busy(self.folder, self.path)
        raise CertusError(
            f"{self.folder} was removed, moved or replaced while it was being trained, so nothing more can be "
            "saved there. If you have it elsewhere, continue it there with `resume`."
        )

    @contextmanager
    def beating(self) -> Iterator[None]:
        """Touch the file now and then."""
        over = threading.Event()

        def beat() -> None:
            while not over.wait(HEARTBEAT):
                with suppress(OSError):
                    os.utime(self.handle if os.utime in os.supports_fd else self.path)

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


HELD: dict[Path, Lock] = {}  # by this process


@contextmanager
def locked(folder: Path, seconds: float = 0.0) -> Iterator[Lock]:
    """Hold the lock of a run folder, which is made if it is not there. The thread that holds it may ask again.

    If another process has it, wait for so many seconds; then raise `Busy`.
    """
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file, not a folder: give another `out`.")
    key = folder.resolve()
    held = HELD.get(key)
    if held and held.thread == threading.get_ident():
        yield held
        return
    made: list[Path] = []
    with ExitStack() as stack:
        stack.callback(remove_empty, made)
        path, handle = wait_for(folder, seconds, made)
        lock = HELD[key] = Lock(folder, path, handle, threading.get_ident())
        stack.callback(release, key)
        stack.enter_context(lock.beating())
        yield lock


def wait_for(folder: Path, seconds: float, made: list[Path]) -> tuple[Path, int]:
    end = time.monotonic() + seconds
    while True:
        made += make_folder(folder)
        try:
            return acquire(folder)
        except FileNotFoundError:  # its last holder has just removed the folder, because nothing came of it
            if folder.is_dir():
                raise
        except Busy:
            if time.monotonic() >= end:
                raise
            time.sleep(0.05)


def remove_empty(folders: list[Path]) -> None:
    with suppress(OSError):
        for path in folders:
            path.rmdir()


def release(key: Path) -> None:
    lock = HELD.pop(key)
    with suppress(OSError):
        if is_at(lock.handle, lock.path):
            lock.path.unlink()
    os.close(lock.handle)


def acquire(folder: Path) -> tuple[Path, int]:
    """The lock file, and its handle, which must stay open."""
    path = folder / NAME
    with naming(path):
        while folder.resolve() not in HELD and cleared(path):
            if (handle := make(path)) is not None:
                return path, handle
    raise busy(folder, path)


def cleared(path: Path) -> bool:
    """Whether there is no lock, now that an abandoned one is removed."""
    try:
        handle = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return True
    try:
        if not is_abandoned(path, handle):
            return False
        aside = part_of(path)
        with suppress(FileNotFoundError):  # another process has removed it
            path.rename(aside)
            if not is_at(handle, aside) and not path.exists():  # another process was quicker, and this is its lock
                aside.rename(path)
            aside.unlink(missing_ok=True)
        return True
    finally:
        os.close(handle)


def is_abandoned(path: Path, handle: int) -> bool:
    process, machine, boot = signed(os.read(handle, 1000)) or (0, "", "")
    if machine == platform.node() and boot in ("", boot_id()):
        free = take(handle)
        return not is_running(process) if free is None else free
    return now(path) - os.fstat(handle).st_mtime > SILENCE


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


def now(path: Path) -> float:
    """The time by the clock that stamps the files beside this one: of a shared folder, the server's."""
    probe = part_of(path)
    handle = os.open(probe, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        return os.fstat(handle).st_mtime
    finally:
        os.close(handle)
        probe.unlink(missing_ok=True)


def make(path: Path) -> int | None:
    """The handle of a new lock file; None if another process was quicker."""
    remove_abandoned(path)
    fresh = part_of(path)
    with ExitStack() as undo:
        undo.callback(fresh.unlink, missing_ok=True)
        handle = write_name(fresh, undo)
        try:
            os.link(fresh, path)
        except OSError as e:
            if e.errno in NO_LINKS:
                os.close(handle)
                try:
                    handle = write_name(path, undo)
                except FileExistsError:
                    return None
            elif not is_at(handle, path):  # else the server has made the link twice
                os.close(handle)
                if isinstance(e, FileExistsError):
                    return None
                raise
        return handle


def write_name(path: Path, undo: ExitStack) -> int:
    """A new file that names this process, and that it has locked."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        take(handle)
        os.write(handle, json.dumps([os.getpid(), platform.node(), boot_id()]).encode())
    except BaseException:
        os.close(handle)
        undo.callback(path.unlink, missing_ok=True)
        raise
    return handle


@cache
def boot_id() -> str:
    """Of two machines with the same name, each has another; empty where the system has none."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


def is_at(handle: int, path: Path) -> bool:
    """Whether an open file is the one that has this name now."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except OSError:
        return False


def signed(text: bytes) -> tuple[int, str, str] | None:
    """The process, the machine and its boot that a lock file names."""
    try:
        process, machine, *boot = json.loads(text)
        return int(process), str(machine), str(boot[0]) if boot else ""
    except (ValueError, TypeError):
        return None


def named(path: Path) -> tuple[int, str] | None:
    """The process and the machine that a lock file names."""
    try:
        found = signed(path.read_bytes())
    except OSError:
        return None
    return found and found[:2]


def busy(folder: Path, path: Path) -> Busy:
    for _ in range(PATIENCE):
        if holder := named(path):
            elsewhere = holder[1] != platform.node()
            remedy = f" If that process is gone, the folder is free after {SILENCE:g} seconds of silence." * elsewhere
            return Busy(f"{folder} is being trained by process {holder[0]} on {holder[1]}.{remedy}")
        if not path.exists():  # released at this moment
            break
        time.sleep(0.05)
    return Busy(f"{folder} is being trained by another process.")
