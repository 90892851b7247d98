"""Vectors of pictures on disk, keyed by the pictures' pixels, so that each picture is embedded once.

features-1/NETWORK/BLOCK.npy   records: digest of the pixels, checksum and vector, in half precision

NETWORK names what made the vectors, BLOCK is a digest of the pictures in it. A file is written under another name, then
renamed, and never changed, so any number of processes can share them. A damaged record is made again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from hashlib import blake2b
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from certus.data.cache import Listen, default_folder, name_of
from certus.writing import make_folder, put

FOLDER = "features-1"  # the version changes when the vectors of the same network change
BLOCK = 512  # pictures that are saved at a time; a killed process loses these
Embed = Callable[[Tensor], Tensor]  # images (n, …) -> vectors (n, width)


listener: ContextVar[Listen] = ContextVar("listener", default=lambda *_: None)


@contextmanager
def heard_by(listen: Listen) -> Iterator[None]:
    """Meanwhile `listen` gets (pictures embedded, pictures to embed)."""
    before = listener.set(listen)
    try:
        yield
    finally:
        listener.reset(before)


class Remembered:
    """The vectors of one network. If the folder cannot be written, they stay in memory."""

    def __init__(self, network: str, width: int, folder: Path | None = None) -> None:
        self.folder = (folder or default_folder()) / FOLDER / network
        self.record = np.dtype([("picture", "u1", (16,)), ("check", "<u4"), ("vector", "<f2", (width,))])
        self.rows: dict[bytes, NDArray[Any]] = {}
        for path in sorted(self.folder.glob("*.npy")):
            self.register(self.read(path))

    def __call__(self, images: Tensor, rows: Tensor, embed: Embed) -> Tensor:
        """The vectors (N, width) of these rows of `images`; `embed` makes the new ones."""
        keys = [blake2b(images[i].contiguous().numpy().data, digest_size=16).digest() for i in rows.tolist()]
        new = {key: i for key, i in zip(keys, rows.tolist(), strict=True) if not self.knows(key)}
        for start in range(0, len(new), BLOCK):
            part = list(new)[start : start + BLOCK]
            self.add(part, embed(images[[new[key] for key in part]]))
            listener.get()(start + len(part), len(new))
        found = np.empty((len(keys), *self.record["vector"].shape), np.float32)
        for i, key in enumerate(keys):
            found[i] = self.rows[key]["vector"]
        return torch.from_numpy(found)

    def knows(self, key: bytes) -> bool:
        """Whether the vector of this picture is there and undamaged."""
        row = self.rows.get(key)
        return row is not None and crc32(row["vector"].tobytes()) == row["check"]

    def add(self, keys: list[bytes], vectors: Tensor) -> None:
        records = np.zeros(len(keys), self.record)
        records["picture"] = np.frombuffer(b"".join(keys), np.uint8).reshape(-1, 16)
        records["vector"] = vectors.numpy()
        records["check"] = [crc32(row.tobytes()) for row in records["vector"]]
        path = self.folder / f"{name_of(keys)}.npy"
        try:
            make_folder(path.parent)
            put(path, lambda file: np.save(file, records))
        except OSError:
            self.register(records)
        else:
            self.register(self.read(path))

    def read(self, path: Path) -> NDArray[Any]:
        """The records of a file, mapped; none of a file that is damaged as a whole."""
        try:
            found = np.load(path, mmap_mode="r", allow_pickle=False)
        except Exception:  # numpy raises almost anything for a damaged file
            found = np.empty(0)
        return found if found.dtype == self.record else np.empty(0, self.record)

    def register(self, records: NDArray[Any]) -> None:
        flat = np.ascontiguousarray(records["picture"]).tobytes()
        self.rows |= {flat[16 * i : 16 * i + 16]: records[i] for i in range(len(records))}
