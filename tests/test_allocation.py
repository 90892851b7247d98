"""Freed memory is kept, and nothing breaks where it cannot be."""

from __future__ import annotations

import ctypes
import sys
from types import SimpleNamespace

import pytest

from certus.allocation import keep_freed_memory


def test_glibc_is_asked_for_both(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[int, int] = {}
    library = SimpleNamespace(mallopt=lambda name, value: asked.setdefault(name, value))
    monkeypatch.setattr(ctypes, "CDLL", lambda _: library)
    monkeypatch.setattr(sys, "platform", "linux")
    keep_freed_memory()
    assert asked == {-1: 1 << 30, -3: 1 << 30}  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of malloc.h


def test_it_is_left_alone_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(ctypes, "CDLL", lambda _: pytest.fail("asked for the C library"))
    keep_freed_memory()
