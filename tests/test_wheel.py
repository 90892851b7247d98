"""A wheel of this tree, installed into an empty environment, holds every package and runs a comparison."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

import certus

ROOT = Path(__file__).parents[1]
PARTS = ("pyproject.toml", "README.md", "LICENSE", "src")


def succeed(*command: str | Path, cwd: Path) -> str:
    """Run it without the paths of this process; its output."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    made = subprocess.run(list(map(str, command)), cwd=cwd, env=clean, capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr
    return made.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so that nothing is left in the tree."""
    place = tmp_path_factory.mktemp("wheel")
    for name in PARTS:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, place / name)
    for left in place.glob("src/*.egg-info"):
        shutil.rmtree(left)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    succeed(*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", "dist", ".", cwd=place)
    (made,) = (place / "dist").glob("*.whl")
    return made


@pytest.fixture(scope="module")
def program(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`certus` in an environment of its own. torch and the others are those of the environment that runs the tests."""
    place = tmp_path_factory.mktemp("environment")
    venv.create(place, with_pip=False)
    python = place / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python)
    succeed(*pip, "install", "--no-deps", "--no-index", wheel, cwd=place)
    (packages,) = place.glob("lib/*/site-packages")
    outer = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    (packages / "dependencies.pth").write_text("\n".join(outer) + "\n")
    found = succeed(python, "-c", "import certus; print(certus.__file__)", cwd=place)
    assert Path(found.strip()).is_relative_to(place), "not the installed one"
    return place / "bin" / "certus"


def test_it_holds_every_module_and_nothing_else(wheel: Path) -> None:
    names = {Path(name) for name in zipfile.ZipFile(wheel).namelist()}
    source = {path.relative_to(ROOT / "src") for path in (ROOT / "src" / "certus").rglob("*.py")}
    page = {path.relative_to(ROOT / "src") for path in (ROOT / "src" / "certus" / "review" / "page").iterdir()}
    assert {name for name in names if ".dist-info" not in name.parts[0]} == source | page | {Path("certus/py.typed")}


def test_its_name_and_version(wheel: Path, program: Path, tmp_path: Path) -> None:
    assert wheel.name == f"certus_ssl-{certus.__version__}-py3-none-any.whl"
    assert succeed(program, "--version", cwd=tmp_path).split() == ["certus", certus.__version__]


def test_it_compares_methods_from_an_empty_folder(program: Path, tmp_path: Path) -> None:
    methods = ("supervised", "ft-ccl")
    settings = ("--data", "moons", "--methods", ",".join(methods), "--seeds", "1", "--epochs", "1")
    printed = succeed(program, "compare", *settings, "--out", "first", cwd=tmp_path)
    results = json.loads((tmp_path / "first" / "results.json").read_text())
    assert set(results["methods"]) == set(methods)
    for method, row in results["methods"].items():
        assert row["n"] == 1
        assert any(method in line and f"{row['mean']:.2f}" in line for line in printed.splitlines()), printed
    for method in methods:
        environment = json.loads((tmp_path / "first" / f"{method}-seed0" / "environment.json").read_text())
        assert environment["certus"] == certus.__version__
