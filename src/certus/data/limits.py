"""Limits on picture files, so that a folder of any files is read within a known memory, with any number of threads.

One picture may have PIXELS pixels and BYTES bytes; all pictures that are being decoded share the same two budgets.
While it is decoded, a picture takes up to 25 bytes per pixel (JPEG 2000; others 2 to 20), so all of them take
up to 25 · PIXELS + BYTES: 1.9 GB with the usual limits. The environment variables CERTUS_MAX_PIXELS and
CERTUS_MAX_BYTES set other limits.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from certus.errors import CertusError, UsageError
from certus.text import brief

PIXELS = 64_000_000
BYTES = 256_000_000


class Unreadable(CertusError):
    """A picture cannot be decoded; the message is only the reason."""


def most_pixels() -> int:
    return limit("CERTUS_MAX_PIXELS", PIXELS)


def most_bytes() -> int:
    return limit("CERTUS_MAX_BYTES", BYTES)


def limit(variable: str, usual: int) -> int:
    given = os.environ.get(variable, "")
    if not given:
        return usual
    if not (given.isascii() and given.isdigit() and len(given) < 16 and int(given)):
        raise UsageError(f"The environment variable {variable} must be a whole number above 0, but is {brief(given)}.")
    return int(given)


def check_file(path: Path) -> int:
    """The size of a file in bytes; refuses what is not a regular file, and what is too large."""
    try:
        state = path.stat()
    except (OSError, ValueError) as error:
        raise Unreadable(getattr(error, "strerror", None) or str(error)) from None
    if not stat.S_ISREG(state.st_mode):
        raise Unreadable("it is not a regular file")
    if state.st_size > (most := most_bytes()):
        raise Unreadable(f"it has {state.st_size:,} bytes, and the limit is {most:,} (CERTUS_MAX_BYTES sets another)")
    return state.st_size


def check_pixels(width: int, height: int, most: int | None = None) -> int:
    """The number of pixels; refuses a picture that has more than `most`, or than the usual limit."""
    usual = most_pixels()
    if (pixels := width * height) > (allowed := min(most or usual, usual)):
        other = " (CERTUS_MAX_PIXELS sets another)" if allowed == usual else ""
        raise Unreadable(f"it has {width:,} × {height:,} pixels, and the limit is {allowed:,} in all{other}")
    return pixels


class Budget:
    """An amount that threads share: one that takes more than is left waits until others give theirs back."""

    def __init__(self) -> None:
        self.taken = 0
        self.changed = threading.Condition()
        self.turn = threading.Lock()  # one waits at a time, so that small pictures do not overtake a large one for ever

    @contextmanager
    def take(self, amount: int, most: int) -> Iterator[None]:
        with self.turn, self.changed:
            self.changed.wait_for(lambda: self.taken + amount <= most or not self.taken)
            self.taken += amount
        try:
            yield
        finally:
            with self.changed:
                self.taken -= amount
                self.changed.notify_all()


bytes_in_use, pixels_in_use = Budget(), Budget()  # always taken in this order, so that nobody waits for ever
