"""Methods from outside the package: registered at run time, and by the entry points of installed packages."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import certus
from certus import methods
from certus.config import resolve
from certus.errors import UsageError
from certus.methods import METHODS, PRETRAINING, Recipe, register, registry
from certus.methods import recipe as recipe_of
from certus.methods.registry import Registry
from certus.training.build import build
from certus.training.planning import complete

BUILT_IN = [recipe.name for family in methods.FAMILIES for recipe in family.RECIPES]
MODULE = """
from dataclasses import replace
from certus.methods import METHODS

ONE = replace(METHODS["supervised"], name="outside")
SEVERAL = tuple(replace(ONE, name=f"outside-{i}") for i in (2, 3))
TAKEN = replace(ONE, name="pi")
NUMBER = 3
"""

Install = Callable[..., None]


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Registry:
    """A registry of the built-in methods alone, in which no plug-in was loaded yet."""
    made = Registry((recipe for family in methods.FAMILIES for recipe in family.RECIPES), reserved=PRETRAINING)
    monkeypatch.setattr(methods, "METHODS", made)
    return made


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Write an installed package with a module and these entry points into a folder of sys.path."""

    def do(module: str = MODULE, **points: str) -> None:
        (tmp_path / "certus_outside.py").write_text(module)
        info = tmp_path / "certus_outside-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: certus-outside\nVersion: 1.0\n")
        lines = [f"{name} = {value}" for name, value in points.items()]
        (info / "entry_points.txt").write_text("\n".join(["[certus.methods]", *lines, ""]))

    monkeypatch.syspath_prepend(tmp_path)
    yield do
    sys.modules.pop("certus_outside", None)


def outside(name: str = "outside", **changes: object) -> Recipe:
    return replace(METHODS["pseudo-label"], name=name, **changes)  # type: ignore[arg-type]


# --- at run time ------------------------------------------------------------------------------------------------------


def test_a_registered_method_comes_last_and_can_be_trained() -> None:
    register(outside())
    assert list(methods.METHODS) == [*BUILT_IN, "outside"]
    assert recipe_of("outside") is methods.METHODS["outside"]
    given = {"data": "moons", "method": "outside", "labels": 6, "validation": 0, "steps": 2, "threads": 1}
    run = build(complete(resolve({**given, "options": {"threshold": 0.5}})))
    assert set(run.advance(0)) == {"supervised", "pseudo"}
    with pytest.raises(UsageError, match="`threshold` must be between 0 and 1, but is 2"):
        resolve({**given, "options": {"threshold": 2.0}})


def test_the_public_name_is_certus_register() -> None:
    assert certus.register is register


@pytest.mark.parametrize("name", ["ft-ccl", "rotation"])
def test_a_name_that_is_taken_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=f"already a method '{name}': give your recipe another name"):
        register(outside(name))
    assert list(methods.METHODS) == BUILT_IN


def test_the_same_recipe_may_be_registered_twice() -> None:
    recipe = outside()
    register(recipe)
    register(recipe)
    with pytest.raises(UsageError, match="already a method"):
        register(replace(recipe, summary="another"))


def test_options_that_are_not_made_by_option_are_refused() -> None:
    @dataclass(frozen=True)
    class Options:
        weight: float = 1.0

    with pytest.raises(UsageError, match="Option weight of method outside must be made by"):
        register(outside(options=Options))
    with pytest.raises(UsageError, match="must be a dataclass"):
        register(outside(options=dict))
    with pytest.raises(UsageError, match=r"by a certus.methods.Recipe, but this is 3"):
        register(3)  # type: ignore[arg-type]


def test_an_unknown_method_is_refused_with_the_nearest_name() -> None:
    register(outside("outside-method"))
    with pytest.raises(UsageError, match=r"no method 'outside-metod'. Did you mean 'outside-method'\?"):
        recipe_of("outside-metod")


# --- by entry points --------------------------------------------------------------------------------------------------


def test_entry_points_are_loaded_for_a_listing(install: Install, fresh: Registry) -> None:
    install(single="certus_outside:ONE", several="certus_outside:SEVERAL")
    assert list(fresh) == [*BUILT_IN, "outside-2", "outside-3", "outside"]
    assert len(fresh) == len(BUILT_IN) + 3
    assert fresh["outside-3"].summary == METHODS["supervised"].summary
    assert set(fresh | PRETRAINING) == {*fresh, *PRETRAINING}


def test_entry_points_are_loaded_for_an_unknown_name_and_not_before(install: Install, fresh: Registry) -> None:
    install(single="certus_outside:ONE")
    assert fresh["pi"].name == "pi"
    assert recipe_of("rotation").name == "rotation"
    assert "certus_outside" not in sys.modules
    assert recipe_of("outside").name == "outside"
    assert "certus_outside" in sys.modules


def test_they_are_read_once(install: Install, fresh: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    install(single="certus_outside:ONE")
    assert "nothing" not in fresh
    monkeypatch.setattr(registry, "entry_points", lambda **_: pytest.fail("read again"))
    assert "nothing" not in fresh
    assert "outside" in fresh


@pytest.mark.parametrize(
    ("module", "value", "reason"),
    [
        ("raise RuntimeError('out of order.')", "certus_outside:ONE", "RuntimeError: out of order"),
        (MODULE, "certus_outside:MISSING", "has no attribute 'MISSING'"),
        (MODULE, "certus_elsewhere:ONE", "No module named 'certus_elsewhere'"),
        (MODULE, "certus_outside:NUMBER", "but this is 3"),
        (MODULE, "certus_outside:TAKEN", "There is already a method 'pi'"),
    ],
    ids=["raises", "no attribute", "no module", "no recipe", "name taken"],
)
def test_a_broken_plug_in_gives_one_warning_and_the_others_are_loaded(
    module: str, value: str, reason: str, install: Install, fresh: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    install(module, broken=value, good="certus_outside:ONE")
    with caplog.at_level(logging.WARNING, "certus"):
        names = list(fresh)
        assert list(fresh) == names
    assert names == ([*BUILT_IN, "outside"] if module == MODULE else BUILT_IN)
    (warning, *others) = [r.getMessage() for r in caplog.records]
    assert warning.startswith(f"The plug-in broken of certus-outside ({value}) could not be loaded (")
    assert reason in warning
    assert warning.endswith("): update it, or uninstall it.")
    assert len(others) == (module != MODULE)  # there the good one is broken too


def test_a_plug_in_may_use_the_registry_and_register_its_methods_itself(install: Install, fresh: Registry) -> None:
    install(MODULE + "\nfrom certus.methods import register\nregister(ONE)\n", single="certus_outside:ONE")
    assert list(fresh) == [*BUILT_IN, "outside"]


def test_the_command_line_knows_a_plug_in(install: Install, tmp_path: Path) -> None:
    install(single="certus_outside:ONE")
    paths = [str(tmp_path), str(Path(certus.__file__).parents[1])]
    done = subprocess.run(
        [sys.executable, "-m", "certus", "methods"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"^others\n  outside +the labelled images alone", done.stdout, re.MULTILINE)
