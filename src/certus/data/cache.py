"""A cache of decoded pictures on disk, keyed by the content of their files, so that each picture is decoded once.

pictures-1/SIZE/NAME.npy        a pack: images, memory-mapped; NAME is a digest of the pictures in their order
                                (SIZE is 64 for cropped pictures, 64-pad or 64-stretch for others)
                                (block-NAME while a folder is being read, so that a killed run can continue)
pictures-1/SIZE/NAME.keys.npy   its records; written last and deleted first, so a pack with records is complete
pictures-1/seen-ROOT.json       file, bytes, time of change, content: an unchanged file need not be opened

Files are written under another name, then renamed, and never changed. So any number of processes can share them.
"""

from __future__ import annotations

import json
import os
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

from certus.data.decode import Decoded, decode_bytes, quiet, read, threaded_map
from certus.data.limits import Unreadable
from certus.writing import make_folder, put

FOLDER = "pictures-1"  # the version changes when the decoding changes
BLOCK, BLOCK_BYTES = 1024, 1 << 26  # most pictures and bytes that are saved at a time; a killed process loses these
SETTLED = 2_000_000_000  # ns: a file that was changed later may change again without a new time stamp
ABANDONED = 86_400_000_000_000  # ns, one day: after this an unfinished file is deleted
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
KnownFiles = dict[tuple[str, int, int], str]  # (file, bytes, time of change in ns) -> content


@dataclass(frozen=True, eq=False)
class Pack:
    """Pictures in a fixed order. A picture that a folder has twice is there twice, so that the folder can be mapped."""

    records: Records  # (N,)
    images: NDArray[np.uint8]  # (N, 1 if all are grey else 3, size, size)

    @property
    def contents(self) -> list[bytes]:
        flat = self.records["content"].tobytes()
        return [flat[i : i + 16] for i in range(0, len(flat), 16)]

    def sound(self, row: int) -> bool:
        """Whether the pixels of this row are those that were written."""
        return checksum(self.images[row], self.records["grey"][row]) == self.records["check"][row]


@dataclass(frozen=True, eq=False)
class Found:
    """The result for each file: its row in the pack, or the reason why it was skipped."""

    pack: Pack
    rows: dict[str, int]
    skipped: dict[str, str]
    notice: str | None

    def images(self, files: Sequence[Path]) -> NDArray[np.uint8]:
        """The images of these files in this order: mapped if their rows are consecutive, else copied."""
        rows = np.array([self.rows[str(file)] for file in files], dtype=np.int64)
        whole = len(rows) > 0 and (np.diff(rows) == 1).all()
        return self.pack.images[rows[0] : rows[-1] + 1] if whole else self.pack.images[rows]

    def copies(self, train: Sequence[Path], test: Sequence[Path]) -> Iterator[tuple[Path, Path]]:
        """Pairs of a training and a test picture with the same pixels, even if the files differ."""
        images, checks = self.pack.images, self.pack.records["check"].tolist()
        candidates: dict[int, list[tuple[Path, int]]] = {}
        for file in train:
            row = self.rows[str(file)]
            candidates.setdefault(checks[row], []).append((file, row))
        for file in test:
            row = self.rows[str(file)]
            for other, other_row in candidates.get(checks[row], ()):
                if (images[row] == images[other_row]).all():
                    yield other, file
                    break


def decoded(root: Path, files: Sequence[str], size: int, folder: Path, listen: Listen, fit: str = "crop") -> Found:
    """The pixels of these files (relative to `root`), from the cache or decoded now on all cores."""
    store = Store(folder / FOLDER / (str(size) if fit == "crop" else f"{size}-{fit}"), size)
    memo = folder / FOLDER / f"seen-{name_of([os.fsencode(root.resolve())])}.json"
    now, known, stamps = time.time_ns(), read_known(memo), {file: stamp(root, file) for file in files}
    contents = {file: bytes.fromhex(known[key]) for file, key in stamps.items() if key in known}
    wanted = [contents[file] for file in files if file in contents]
    store.index(likely=name_of(wanted))
    cached = store.intact(list(dict.fromkeys(wanted)))
    todo = [file for file in files if contents.get(file) not in cached]
    skipped: dict[str, str] = {}
    fresh: dict[bytes, Decoded] = {}

    def examine(file: str) -> tuple[bytes, Decoded | None] | str:
        try:
            with read(root / file) as data:
                key = blake2b(data, digest_size=16).digest()
                return key, None if store.has(key) else decode_bytes(data, size, fit)
        except Unreadable as reason:
            return str(reason)

    try:
        with quiet():
            for done, (file, outcome) in enumerate(zip(todo, threaded_map(examine, todo), strict=True), 1):
                if isinstance(outcome, str):
                    skipped[file] = outcome
                else:
                    contents[file], picture = outcome
                    if picture is not None:
                        fresh[contents[file]] = picture
                if len(fresh) == store.block:
                    store.add(fresh)
                    fresh = {}
                listen(done, len(todo))
    finally:
        if fresh:  # an interrupted run saves its work, too
            store.add(fresh)
    kept = {file: contents[file] for file in files if file not in skipped}
    pack = store.gather(list(kept.values()))
    settled = {f: key for f, key in stamps.items() if f in kept and key[2] < now - SETTLED}
    if (known_now := {key: kept[file].hex() for file, key in settled.items()}) != known:
        store.try_to_put(memo, json.dumps([[*key, content] for key, content in known_now.items()]).encode())
    return Found(pack, {file: row for row, file in enumerate(kept)}, skipped, store.notice)


def stamp(root: Path, file: str) -> tuple[str, int, int]:
    """File, bytes, time of change in ns; −1 if there is no such file."""
    try:
        state = os.stat(os.path.join(root, file))  # noqa: PTH116, PTH118 (Path is much slower, for 100,000 files)
    except OSError:
        return file, -1, -1
    return file, state.st_size, state.st_mtime_ns


def read_known(memo: Path) -> KnownFiles:
    """The files of the last time; empty if the list is damaged."""
    try:
        listed = json.loads(memo.read_bytes())
        return {(str(f), int(size), int(at)): bytes.fromhex(content).hex() for f, size, at, content in listed}
    except (OSError, ValueError, TypeError):
        return {}


def name_of(contents: Sequence[bytes]) -> str:
    return blake2b(b"".join(contents), digest_size=16).hexdigest()


def checksum(pixels: NDArray[np.uint8], grey: bool) -> int:
    """A grey picture has the same checksum with one channel and with three."""
    return crc32(np.ascontiguousarray(pixels[:1] if grey else pixels).data)


@dataclass
class Store:
    """All packs of one size. If the folder cannot be written, packs stay in memory, and `notice` says so."""

    folder: Path
    size: int
    packs: dict[str, Pack] = field(default_factory=dict)
    locations: dict[bytes, tuple[str, Pack, int]] = field(default_factory=dict)  # content -> pack and row
    notice: str | None = None

    @property
    def block(self) -> int:
        return max(1, min(BLOCK, BLOCK_BYTES // (3 * self.size**2)))

    def index(self, likely: str) -> None:
        """Open all packs. The pack `likely` comes last and so takes precedence: it may be used as a whole."""
        names = {path.name.removesuffix(".keys.npy") for path in self.folder.glob("*.keys.npy")}
        for name in sorted(names, key=lambda name: (name == likely, name)):
            if pack := self.open(name):
                self.register(name, pack)
        for path in self.folder.glob("*"):  # leftovers of a killed process
            part_of_a_pack = path.name.removesuffix(".npy").removesuffix(".keys") in names
            if not part_of_a_pack and time.time_ns() - stamp(self.folder, path.name)[2] > ABANDONED:
                try_to_delete(path)

    def open(self, name: str) -> Pack | None:
        """The pack, mapped privately, so that nothing is written back. A damaged pack is deleted."""
        try:
            with quiet():
                records = np.load(self.folder / f"{name}.keys.npy", allow_pickle=False)
                images = np.load(self.folder / f"{name}.npy", mmap_mode="c", allow_pickle=False)
            shapes = [(len(records), channels, self.size, self.size) for channels in (1, 3)]
            if records.dtype == RECORD and images.dtype == np.uint8 and images.shape in shapes:
                return Pack(records, images)
        except FileNotFoundError:
            return None  # deleted by another process, or a pack without images
        except Exception:  # numpy raises almost anything for a damaged file
            pass
        self.delete(name)
        return None

    def register(self, name: str, pack: Pack) -> None:
        self.packs[name] = pack
        self.locations |= {content: (name, pack, row) for row, content in enumerate(pack.contents)}

    def has(self, content: bytes) -> bool:
        """Whether this picture is cached and undamaged. A damaged pack is deleted; this run uses its good rows."""
        if (location := self.locations.get(content)) is None:
            return False
        name, pack, row = location
        if pack.sound(row):
            return True
        self.locations.pop(content, None)
        self.delete(name)
        return False

    def intact(self, contents: Sequence[bytes]) -> set[bytes]:
        """Those of the pictures that are cached and undamaged."""
        parts = [contents[at : at + 256] for at in range(0, len(contents), 256)]
        return {c for good in threaded_map(lambda part: [c for c in part if self.has(c)], parts) for c in good}

    def add(self, pictures: Mapping[bytes, Decoded]) -> None:
        """Save newly decoded pictures as a block."""
        records, images = np.zeros(len(pictures), RECORD), [p.pixels for p in pictures.values()]
        for i, (content, p) in enumerate(pictures.items()):
            digest = np.frombuffer(content, np.uint8)
            records[i] = (digest, checksum(p.pixels, p.grey), p.width, p.height, p.grey, p.transparent)
        self.save(f"block-{name_of(list(pictures))}", records, images)

    def gather(self, contents: Sequence[bytes]) -> Pack:
        """One pack of exactly these pictures, in this order. Blocks and smaller packs that it replaces are deleted."""
        locations, name = [self.locations[content] for content in contents], name_of(contents)
        pack, replaced = self.packs.get(name), "block-"
        if pack is None or not all(p is pack and (i == row or p.sound(i)) for i, (_, p, row) in enumerate(locations)):
            records = np.array([pack.records[row] for _, pack, row in locations], RECORD)
            pack, replaced = self.save(name, records, [pack.images[row] for _, pack, row in locations]), ""
        whole = set(contents)
        for old, p in list(self.packs.items()) if self.notice is None else ():
            if old.startswith(replaced) and old != name and whole.issuperset(p.contents):
                self.delete(old)
        return pack

    def save(self, name: str, records: Records, images: Sequence[NDArray[np.uint8]]) -> Pack:
        """Write a pack and map it into memory; keep it in memory if the folder cannot be written."""
        shape = (len(records), 1 if records["grey"].all() else 3, self.size, self.size)

        def blocks() -> Iterator[NDArray[np.uint8]]:
            for at in range(0, len(records), self.block):
                yield np.stack([np.broadcast_to(i[: shape[1]], shape[1:]) for i in images[at : at + self.block]])

        def write(file: BinaryIO) -> None:  # not through a memory map: a full disk would kill the process
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
        self.register(name, pack)
        return pack

    def try_to_put(self, path: Path, write: Callable[[BinaryIO], Any] | bytes) -> bool:
        """Write a file completely or not at all; on failure set `notice` and return False."""
        try:
            make_folder(path.parent)
            put(path, write)
            return True
        except OSError as error:
            self.notice = (
                f"The cache folder {path.parent} cannot be written ({error.strerror or error}), so the pictures will "
                "be decoded again next time: set the environment variable CERTUS_CACHE to another folder."
            )
            return False

    def delete(self, name: str) -> None:
        self.packs.pop(name, None)
        for ending in (".keys.npy", ".npy"):
            try_to_delete(self.folder / f"{name}{ending}")


def try_to_delete(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return  # of another user, or open in another process: it does no harm


def default_folder() -> Path:
    """$CERTUS_CACHE, or the usual cache folder of this system."""
    if named := os.environ.get("CERTUS_CACHE"):
        return Path(named)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "certus" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "certus"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "certus"
