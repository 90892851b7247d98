"""Memory that a training process has freed stays with it while it trains: the next step needs the same again."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's mallopt
LARGE = 1 << 30


def keep_freed_memory() -> None:
    """Ask glibc not to give large blocks back to the system after each use and to fetch their pages anew.

    That took 12 % of a training step (docs/performance.md). Elsewhere than on Linux with glibc nothing happens.
    """
    ask_glibc("mallopt", M_MMAP_THRESHOLD, LARGE)
    ask_glibc("mallopt", M_TRIM_THRESHOLD, LARGE)


@contextmanager
def freed_memory_kept() -> Iterator[None]:
    """Kept until the end, then given back: else a worker would hold what the largest of its runs had needed."""
    keep_freed_memory()
    try:
        yield
    finally:
        ask_glibc("malloc_trim", 0)


def ask_glibc(name: str, *words: int) -> None:
    library: Any = ctypes.CDLL(None) if sys.platform.startswith("linux") else None
    if function := getattr(library, name, None):
        function(*words)
