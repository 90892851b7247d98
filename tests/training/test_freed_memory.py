"""Freed memory is kept while a run trains and given back after it, and nothing breaks where that cannot be."""

from __future__ import annotations

import ctypes
import sys
from types import SimpleNamespace

import pytest

from certus.training.memory import freed_memory_kept


def test_glibc_is_asked_to_keep_it_and_at_the_end_to_give_it_back(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, ...]] = []
    library = SimpleNamespace(mallopt=lambda *words: asked.append(words), malloc_trim=lambda pad: asked.append((pad,)))
    monkeypatch.setattr(ctypes, "CDLL", lambda _: library)
    monkeypatch.setattr(sys, "platform", "linux")
    with freed_memory_kept():
        assert asked == [(-3, 1 << 30), (-1, 1 << 30)]  # M_MMAP_THRESHOLD and M_TRIM_THRESHOLD of malloc.h
    assert asked[2:] == [(0,)]


def test_a_run_that_breaks_off_gives_it_back_too(monkeypatch: pytest.MonkeyPatch) -> None:
    given_back: list[int] = []
    monkeypatch.setattr(ctypes, "CDLL", lambda _: SimpleNamespace(malloc_trim=given_back.append))
    monkeypatch.setattr(sys, "platform", "linux")

    def broken() -> None:
        with freed_memory_kept():
            raise ValueError("broken off")

    with pytest.raises(ValueError, match="broken off"):
        broken()
    assert given_back == [0]


@pytest.mark.parametrize(("platform", "library"), [("darwin", None), ("linux", SimpleNamespace())])
def test_it_is_left_alone_elsewhere(
    monkeypatch: pytest.MonkeyPatch, platform: str, library: SimpleNamespace | None
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(ctypes, "CDLL", lambda _: library or pytest.fail("asked for the C library"))
    with freed_memory_kept():
        pass
