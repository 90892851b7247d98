"""Memory that a training process has freed stays with it: the next step needs the same again."""

from __future__ import annotations

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's mallopt
LARGE = 1 << 30


def keep_freed_memory() -> None:
    """Ask glibc not to give large blocks back to the system after each use and to fetch their pages anew.

    That took 12 % of a training step (docs/performance.md). Elsewhere than on Linux with glibc nothing happens.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, LARGE)
        mallopt(M_TRIM_THRESHOLD, LARGE)
