"""Decoded pictures on disk, keyed by the content of their files, so that each is decoded once.

pictures-1/SIZE/NAME.npy        a pack: images, memory-mapped; NAME is the digest of which pictures, in which order
                                (block-NAME while a folder is being read, so that a killed run goes on from there)
pictures-1/SIZE/NAME.keys.npy   its records; written last and deleted first, so that a pack with keys is complete
pictures-1/seen-ROOT.json       file, bytes, time of change, content: an unchanged file is not even opened

Files are written under another name and then renamed, and never changed: any number of processes may share them.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from certus.data.decode import Decoded, Unreadable, decode_bytes, in_order, quiet, read

FOLDER = "pictures-1"  # the number changes when decoding does
BLOCK = 1024  # pictures that are saved at a time: a killed process loses no more
SETTLED = 2_000_000_000  # ns: a file changed more recently may change again within one tick of its clock
LEFT = 86_400_000_000_000  # ns, a day: no process takes so long to finish a file
RECORD = np.dtype(
    [
        ("content", "u1", (16,)),  # blake2b of the file
        ("check", "<u4"),  # crc32 of the pixels
        ("width", "<u4"),
        ("height", "<u4"),
        ("grey", "?"),
        ("transparent", "?"),
    ]
)
Records = np.ndarray[Any, np.dtype[np.void]]
Listen = Callable[[int, int], None]  # (pictures read, pictures to read)
Seen = dict[tuple[str, int, int], str]  # (file, bytes, time of change in ns) -> content


@dataclass(frozen=True, eq=False)
class Pack:
    """Different pictures in a fixed order."""

    records: Records  # (N,)
    images: NDArray[np.uint8]  # (N, 1 if all are grey else 3, size, size)

    @property
    def contents(self) -> list[bytes]:
        flat = self.records["content"].tobytes()
        return [flat[i : i + 16] for i in range(0, len(flat), 16)]


@dataclass(frozen=True, eq=False)
class Found:
    """What became of each file: its row in the pack, or why it has none."""

    pack: Pack
    rows: dict[str, int]
    skipped: dict[str, str]
    notice: str | None

    def images(self, files: Sequence[Path]) -> NDArray[np.uint8]:
        """Of these files in this order: mapped where they lie in one piece, else (a content comes twice) copied."""
        rows = np.array([self.rows[str(file)] for file in files], dtype=np.int64)
        whole = len(rows) > 0 and (np.diff(rows) == 1).all()
        return self.pack.images[rows[0] : rows[-1] + 1] if whole else self.pack.images[rows]

    def copies(self, train: Sequence[Path], test: Sequence[Path]) -> Iterator[tuple[Path, Path]]:
        """Each test picture with the same pixels as a training picture, even in another kind of file."""
        images, checks = self.pack.images, self.pack.records["check"].tolist()
        alike: dict[int, list[tuple[Path, int]]] = {}
        for file in train:
            row = self.rows[str(file)]
            alike.setdefault(checks[row], []).append((file, row))
        for file in test:
            row = self.rows[str(file)]
            for other, there in alike.get(checks[row], ()):
                if (images[row] == images[there]).all():
                    yield other, file
                    break


def decoded(root: Path, files: Sequence[str], size: int, folder: Path, listen: Listen) -> Found:
    """The pixels of these files (relative to `root`), from the cache or decoded now, by all cores."""
    store = Store(folder / FOLDER / str(size), size)
    memo = folder / FOLDER / f"seen-{name_of([os.fsencode(root.resolve())])}.json"
    now, seen, stamps = time.time_ns(), recall(memo), {file: stamp(root, file) for file in files}
    contents = {file: bytes.fromhex(seen[key]) for file, key in stamps.items() if key in seen}
    wanted = list(dict.fromkeys(contents.values()))
    store.index(likely=name_of(wanted))
    here = store.intact(wanted)
    todo = [file for file in files if contents.get(file) not in here]
    skipped: dict[str, str] = {}
    fresh: dict[bytes, Decoded] = {}

    def examine(file: str) -> tuple[bytes, Decoded | None] | str:
        try:
            data = read(root / file)
            content = blake2b(data, digest_size=16).digest()
            return content, None if store.has(content) else decode_bytes(data, size)
        except Unreadable as reason:
            return str(reason)

    try:
        with quiet():
            for done, (file, outcome) in enumerate(zip(todo, in_order(examine, todo), strict=True), 1):
                if isinstance(outcome, str):
                    skipped[file] = outcome
                else:
                    contents[file], picture = outcome
                    if picture is not None:
                        fresh[contents[file]] = picture
                if len(fresh) == BLOCK:
                    store.add(fresh)
                    fresh = {}
                listen(done, len(todo))
    finally:
        if fresh:  # an interrupted run keeps what it has done, too
            store.add(fresh)
    kept = {file: contents[file] for file in files if file not in skipped}
    pack = store.gather(list(dict.fromkeys(kept.values())))
    settled = {f: key for f, key in stamps.items() if f in kept and key[2] < now - SETTLED}
    if (now_seen := {key: kept[file].hex() for file, key in settled.items()}) != seen:
        store.try_to_put(memo, json.dumps([[*key, content] for key, content in now_seen.items()]).encode())
    row = {content: i for i, content in enumerate(pack.contents)}
    return Found(pack, {file: row[content] for file, content in kept.items()}, skipped, store.notice)


def stamp(root: Path, file: str) -> tuple[str, int, int]:
    try:
        state = os.stat(os.path.join(root, file))  # noqa: PTH116, PTH118 (Path takes far longer, 100,000 times)
    except OSError:
        return file, -1, -1
    return file, state.st_size, state.st_mtime_ns


def recall(memo: Path) -> Seen:
    """What was seen last time; nothing if that is damaged."""
    try:
        listed = json.loads(memo.read_bytes())
        return {(str(f), int(size), int(at)): bytes.fromhex(content).hex() for f, size, at, content in listed}
    except (OSError, ValueError, TypeError):
        return {}


def name_of(contents: Sequence[bytes]) -> str:
    return blake2b(b"".join(contents), digest_size=16).hexdigest()


def check(pixels: NDArray[np.uint8], grey: bool) -> int:
    """The same for a grey picture whether it is stored with one channel or with three."""
    return crc32(np.ascontiguousarray(pixels[:1] if grey else pixels).data)


@dataclass
class Store:
    """All packs of one size. What cannot be written stays in memory, and a notice says so."""

    folder: Path
    size: int
    packs: dict[str, Pack] = field(default_factory=dict)
    places: dict[bytes, tuple[str, Pack, int]] = field(default_factory=dict)  # content -> pack and row
    notice: str | None = None

    def index(self, likely: str) -> None:
        """Learn what is there. What the likely pack holds is taken from there, as that may be wanted whole."""
        names = {path.name.removesuffix(".keys.npy") for path in self.folder.glob("*.keys.npy")}
        for name in sorted(names, key=lambda name: (name == likely, name)):
            if pack := self.open(name):
                self.take(name, pack)
        for path in self.folder.glob("*"):  # what a killed process left
            part_of_a_pack = path.name.removesuffix(".npy").removesuffix(".keys") in names
            if not part_of_a_pack and time.time_ns() - stamp(self.folder, path.name)[2] > LEFT:
                try_to_delete(path)

    def open(self, name: str) -> Pack | None:
        """The pack, mapped privately: nothing is ever written back. A damaged one is deleted."""
        try:
            with quiet():
                records = np.load(self.folder / f"{name}.keys.npy", allow_pickle=False)
                images = np.load(self.folder / f"{name}.npy", mmap_mode="c", allow_pickle=False)
            shapes = [(len(records), channels, self.size, self.size) for channels in (1, 3)]
            if records.dtype == RECORD and images.dtype == np.uint8 and images.shape in shapes:
                return Pack(records, images)
        except FileNotFoundError:
            return None  # deleted by another process, or a pack without images
        except Exception:  # numpy raises almost anything at a damaged file
            pass
        self.delete(name)
        return None

    def take(self, name: str, pack: Pack) -> None:
        self.packs[name] = pack
        self.places |= {content: (name, pack, row) for row, content in enumerate(pack.contents)}

    def has(self, content: bytes) -> bool:
        """Is this picture here, undamaged? A pack with damage is deleted; its good rows serve this run to the end."""
        if (place := self.places.get(content)) is None:
            return False
        name, pack, row = place
        if check(pack.images[row], pack.records["grey"][row]) == pack.records["check"][row]:
            return True
        self.places.pop(content, None)
        self.delete(name)
        return False

    def intact(self, contents: Sequence[bytes]) -> set[bytes]:
        some = [contents[at : at + 256] for at in range(0, len(contents), 256)]
        return {c for good in in_order(lambda part: [c for c in part if self.has(c)], some) for c in good}

    def add(self, pictures: Mapping[bytes, Decoded]) -> None:
        """Save these pictures, decoded in this run, as a block."""
        records, images = np.zeros(len(pictures), RECORD), [p.pixels for p in pictures.values()]
        for i, (content, p) in enumerate(pictures.items()):
            digest = np.frombuffer(content, np.uint8)
            records[i] = (digest, check(p.pixels, p.grey), p.width, p.height, p.grey, p.transparent)
        self.save(f"block-{name_of(list(pictures))}", records, images)

    def gather(self, contents: Sequence[bytes]) -> Pack:
        """One pack of exactly these pictures in this order; what it replaces is deleted: blocks, and smaller packs."""
        places, name = [self.places[content] for content in contents], name_of(contents)
        pack, replaced = self.packs.get(name), "block-"
        if pack is None or not all(p is pack for _, p, _ in places):
            records = np.array([pack.records[row] for _, pack, row in places], RECORD)
            pack, replaced = self.save(name, records, [pack.images[row] for _, pack, row in places]), ""
        whole = set(contents)
        for old, p in list(self.packs.items()) if self.notice is None else ():
            if old.startswith(replaced) and old != name and whole.issuperset(p.contents):
                self.delete(old)
        return pack

    def save(self, name: str, records: Records, images: Sequence[NDArray[np.uint8]]) -> Pack:
        """Write a pack and map it; keep it in memory if the folder cannot be written."""
        shape = (len(records), 1 if records["grey"].all() else 3, self.size, self.size)

        def blocks() -> Iterator[NDArray[np.uint8]]:
            for at in range(0, len(records), BLOCK):
                yield np.stack([np.broadcast_to(i[: shape[1]], shape[1:]) for i in images[at : at + BLOCK]])

        def write(file: BinaryIO) -> None:  # not into a map: a full disk would kill the process
            np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
            for block in blocks():
                file.write(np.ascontiguousarray(block).data)

        written = (
            len(records) > 0
            and self.try_to_put(self.folder / f"{name}.npy", write)
            and self.try_to_put(self.folder / f"{name}.keys.npy", lambda file: np.save(file, records))
        )
        pack = self.open(name) if written else None
        pack = pack or Pack(records, np.concatenate([np.empty((0, *shape[1:]), np.uint8), *blocks()]))
        self.take(name, pack)
        return pack

    def try_to_put(self, path: Path, write: Callable[[BinaryIO], Any] | bytes) -> bool:
        """Write a file whole or not at all; False, and a notice, if it cannot be."""
        fresh = path.with_name(f".writing-{secrets.token_hex(8)}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with fresh.open("xb") as file:
                file.write(write) if isinstance(write, bytes) else write(file)
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(path)
            return True
        except OSError as error:
            self.notice = (
                f"The cache folder {path.parent} cannot be written ({error.strerror or error}), so the pictures will "
                "be decoded again next time: name another folder in the environment variable CERTUS_CACHE."
            )
            return False
        finally:
            try_to_delete(fresh)

    def delete(self, name: str) -> None:
        self.packs.pop(name, None)
        for ending in (".keys.npy", ".npy"):
            try_to_delete(self.folder / f"{name}{ending}")


def try_to_delete(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return  # another's, or open in another process: it does no harm


def default_folder() -> Path:
    """$CERTUS_CACHE, or the place for caches on this system."""
    if named := os.environ.get("CERTUS_CACHE"):
        return Path(named)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "certus" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "certus"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "certus"
