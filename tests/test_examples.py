"""The examples run as they are printed: scripts in examples/, and those in the docstrings of the public names."""

from __future__ import annotations

import doctest
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def on_one_core() -> None:
    """Other tests use the other cores at the same time."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


@pytest.mark.parametrize("script", ["arrays", "own_network", "new_method"])
def test_an_example_runs(script: str, tmp_path: Path) -> None:
    words = [sys.executable, str(EXAMPLES / f"{script}.py")]
    done = subprocess.run(words, cwd=tmp_path, preexec_fn=on_one_core, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "error" in done.stdout
    assert float(done.stdout.split("error ")[1].split()[0]) < 35


@pytest.mark.parametrize(
    "module",
    [
        *("certus", "certus.api", "certus.classifier", "certus.model", "certus.report.statistics"),
        *(f"certus.review.{name}" for name in ("accepting", "choosing", "suspecting")),
    ],
)
def test_the_examples_of_the_docstrings_are_true(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = doctest.testmod(import_module(module), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.attempted > 0
    assert result.failed == 0
