"""Arrays of numbers from MATLAB's .mat files (version 5). Every length is checked before it is used: a damaged file
makes scipy's reader crash the whole process.

A file is a header of 128 bytes, then elements: type and length as 32 bits each, then the content. An element is an
array or a zlib stream that holds one. An array consists of elements too: flags, sizes, name, numbers. In a short
element, the type has the length in its upper half, and at most 4 bytes follow.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}  # by type
INT8, INT32, UINT32, ARRAY, PACKED = 1, 5, 6, 14, 15
PLAIN = range(6, 16)  # classes of arrays that hold numbers
COMPLEX = 0x800  # flag
CHUNK = 1 << 20
MOST_PACKED = 1100  # zlib makes nothing smaller by more than this factor

Read = Callable[[int], bytearray]  # exactly so many bytes, which belong to the caller


def read_mat(path: Path, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """The arrays of these names that the file has; ValueError if it is damaged or has another format."""
    size, found = path.stat().st_size, {}
    with path.open("rb") as file:
        header = file.read(128)
        order = {b"\0\1IM": "<", b"\1\0MI": ">"}.get(header[124:])
        if order is None:
            raise ValueError("it is not a .mat file of version 5")
        while (start := file.tell()) < size:
            kind, length = struct.unpack(f"{order}II", exactly(file, 8))
            if start + 8 + length > size:
                raise ValueError("it is cut")
            if kind == PACKED:
                packed = Unpacked(file, length)
                name, values = array(packed.read, order, length * MOST_PACKED, names)
                if values is not None:
                    packed.finish()
            elif kind == ARRAY:
                file.seek(start)
                name, values = array(lambda n: exactly(file, n), order, length, names)
            else:
                raise ValueError(f"it has an element of type {kind}")
            if values is not None:
                found[name] = values
            file.seek(start + 8 + length)
    return found


def array(read: Read, order: str, most: int, names: Sequence[str]) -> tuple[str, NDArray[Any] | None]:
    """The name of the next array, and its numbers if it is one of `names`."""
    kind, _ = struct.unpack(f"{order}II", read(8))
    if kind != ARRAY:
        raise ValueError(f"it has an element of type {kind} in place of an array")
    flags = np.frombuffer(element(read, order, UINT32, 8), f"{order}u4")
    sizes = np.frombuffer(element(read, order, INT32, 4 * 32), f"{order}i4").tolist()
    name = element(read, order, INT8, 64).decode("latin-1")
    if name not in names:
        return name, None
    if len(flags) != 2 or int(flags[0]) & 0xFF not in PLAIN or int(flags[0]) & COMPLEX:
        raise ValueError(f"{name} is not an array of numbers")
    kind, length, short = tag(read, order)
    if kind not in NUMBERS or not sizes or min(sizes) < 0:
        raise ValueError(f"{name} is not an array of numbers")
    dtype = np.dtype(f"{order}{NUMBERS[kind]}")
    if length > most or prod(sizes) * dtype.itemsize != length:
        raise ValueError(f"{name} has {length:,} bytes for {'×'.join(map(str, sizes))} numbers")
    values = np.frombuffer(read(length) if short is None else short[:length], dtype)
    return name, values.astype(dtype.newbyteorder("="), copy=False).reshape(sizes, order="F")


def tag(read: Read, order: str) -> tuple[int, int, bytearray | None]:
    """Type and length of the next element, and its content if it is a short one."""
    head = read(8)
    kind, length = struct.unpack(f"{order}II", head)
    if kind >> 16:
        if kind >> 16 > 4:
            raise ValueError("it has a short element of more than 4 bytes")
        return kind & 0xFFFF, kind >> 16, head[4:]
    return kind, length, None


def element(read: Read, order: str, wanted: int, most: int) -> bytearray:
    """The content of the next element, which must have this type."""
    kind, length, short = tag(read, order)
    if kind != wanted or length > most:
        raise ValueError(f"it has an element of type {kind} and {length:,} bytes in place of type {wanted}")
    if short is not None:
        return short[:length]
    content = read(length)
    read(-length % 8)
    return content


def exactly(file: BinaryIO, n: int) -> bytearray:
    content = bytearray(n)
    if file.readinto(content) != n:  # type: ignore[attr-defined]
        raise ValueError("it is cut")
    return content


class Unpacked:
    """The content of a zlib stream of this many bytes, read piece by piece into memory that was measured before."""

    def __init__(self, file: BinaryIO, length: int) -> None:
        self.file, self.left, self.stream, self.waiting = file, length, zlib.decompressobj(), b""

    def some(self, most: int) -> bytes:
        """Up to `most` bytes; none at the end."""
        while not self.stream.eof:
            if not self.waiting and self.left:
                self.waiting = self.file.read(min(CHUNK, self.left))
                self.left -= len(self.waiting)
            exhausted = not self.waiting
            piece = self.stream.decompress(self.waiting, most)
            self.waiting = self.stream.unconsumed_tail
            if piece:
                return piece
            if exhausted:
                break
        return b""

    def read(self, n: int) -> bytearray:
        content, done = bytearray(n), 0
        while done < n:
            if not (piece := self.some(min(CHUNK, n - done))):
                raise ValueError("it is cut")
            content[done : done + len(piece)] = piece
            done += len(piece)
        return content

    def finish(self) -> None:
        """Read to the end, where zlib checks its checksum."""
        while self.some(CHUNK):
            pass
        if not self.stream.eof:
            raise ValueError("it is cut")
