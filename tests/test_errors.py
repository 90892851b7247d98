"""An error that nobody foresaw is one sentence, and its traceback is in a file."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from certus.cli import main as module
from certus.cli.main import main
from certus.errors import unexpected


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def broken(*_: object) -> None:
    raise ZeroDivisionError("an example\nof two lines")


def test_the_last_net(temporary: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(module, "run", broken)
    assert main(["train"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    (file,) = temporary.iterdir()
    assert line.startswith("certus: Something went wrong that certus does not expect (ZeroDivisionError: an example of")
    assert str(file) in line
    assert "in broken" in file.read_text()
    monkeypatch.setenv("CERTUS_TRACEBACK", "1")
    with pytest.raises(ZeroDivisionError):
        main(["train"])


def test_without_a_place_for_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    assert "CERTUS_TRACEBACK" in str(unexpected(ValueError("x")))


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: 8 TB")])
def test_too_little_memory(error: Exception, temporary: Path) -> None:
    assert "not enough memory" in str(unexpected(error))
    assert not list(temporary.iterdir())
