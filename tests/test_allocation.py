"""Freed memory is kept, and nothing breaks where it cannot be."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

from certus.allocation import keep_freed_memory

FAULTS = """
import resource, sys
import torch
from certus.allocation import keep_freed_memory
if sys.argv[1] == "keep":
    keep_freed_memory()
torch.ones(40_000_000)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    torch.ones(40_000_000)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="no glibc here")
def test_pages_are_not_fetched_anew_for_each_large_tensor() -> None:
    plain, kept = (
        int(subprocess.run([sys.executable, "-c", FAULTS, how], capture_output=True, text=True, check=True).stdout)
        for how in ("plain", "keep")
    )
    assert kept < plain / 10


def test_it_is_left_alone_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(ctypes, "CDLL", lambda _: pytest.fail("asked for the C library"))
    keep_freed_memory()
