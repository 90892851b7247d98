"""The help pages, as a user reads them."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from dataclasses import fields

import pytest

from certus.cli.flags import flags_of, spelled
from certus.cli.main import COMMANDS, main, module
from certus.cli.methods import GROUPS
from certus.config.presets import METHOD_PRESETS
from certus.methods import METHODS


def page(words: str, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    monkeypatch.setenv("COLUMNS", str(width))
    assert main(words.split()) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    return shown.out


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_page_fits_and_shows_every_flag_but_no_list_of_methods(
    command: str, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = page(f"{command} --help", width, monkeypatch, capsys)
    assert max(map(len, shown.splitlines())) <= width
    assert shown.startswith(f"usage: certus {command} [-h]")
    assert COMMANDS[command] in " ".join(shown.split())  # the same first sentence as in the table of commands
    for flag in flags_of(module(command).Options):
        assert flag.usage in shown or not flag.group
    assert len(METHODS.keys() & re.findall(r"[a-z-]+", shown)) <= 3  # the defaults of compare
    assert shown == page(f"{command} -h", width, monkeypatch, capsys)


@pytest.mark.parametrize("words", ["", "--help", "-h"])
def test_certus_alone_lists_the_commands(
    words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = page(words, 80, monkeypatch, capsys)
    assert max(map(len, shown.splitlines())) <= 80
    assert all(f"  {name} " in shown for name in COMMANDS)


def test_the_page_of_train_groups_the_settings_and_names_where_the_options_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = page("train --help", 80, monkeypatch, capsys).splitlines()
    titles = ["data and labels", "method", "network", "views", "training", "length", "machine", "files"]
    assert [line for line in lines if line in titles] == titles
    assert lines.index("length") < lines.index("machine") - 3
    assert "Each method has its own options: certus train --method NAME --help" in lines


@pytest.mark.parametrize("name", METHODS)
def test_the_page_of_a_method_shows_its_options_alone(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = page("train --help", 120, monkeypatch, capsys)
    shown = page(f"train --method {name} --data cifar10 --help", 120, monkeypatch, capsys)
    assert shown.startswith(plain)
    own = shown.removeprefix(plain)
    options = {f.name: f for f in flags_of(module("train").Options) if not f.group}
    for option in options:
        named = f"  {spelled(option)} " in own or f"  --[no-]{spelled(option)[2:]} " in own
        assert named == (option in METHODS[name].defaults())
    assert own.count("(default: ") == len(METHODS[name].defaults())
    assert f"options of {name}" in own or not METHODS[name].defaults()


def test_the_defaults_on_a_page_are_those_that_the_run_would_have(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert METHOD_PRESETS["cifar10", "vat"]["epsilon"] == 8
    assert METHOD_PRESETS["svhn", "vat"]["epsilon"] == 17.5
    for data, value in (("cifar10", "8"), ("svhn", "17.5")):
        shown = page(f"train --method vat --data {data} --help", 120, monkeypatch, capsys)
        line = next(line for line in shown.splitlines() if "--epsilon" in line)
        assert line.endswith(f"(default: {value})")


def test_methods_lists_each_method_once_by_group(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    grouped = [name for names in GROUPS.values() for name in names]
    assert len(grouped) == len(set(grouped))
    assert set(grouped) <= METHODS.keys()
    lines = page("methods", 80, monkeypatch, capsys).splitlines()
    assert max(map(len, lines)) <= 80
    assert [title for title in lines if title in GROUPS] == list(GROUPS)
    for name in METHODS:
        assert sum(line.split()[:1] == [name] and line.startswith("  ") for line in lines) == 1


def test_methods_explains_one(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    shown = page("methods ft-ccl", 120, monkeypatch, capsys)
    known = METHODS["ft-ccl"]
    assert shown.startswith(f"ft-ccl: {known.summary}\n  from {known.reference}\n")
    assert "teacher = EMA(student, 0.99)" in shown
    for f in fields(known.options):
        assert f"  {spelled(f.name)} " in shown
    assert "  --heat 4  " in shown
    assert "V_b of the temperature, V_max = max(V_b − e/80, 1) (Liu & Tan 2021)" in shown
    assert "vat:" not in shown


def test_a_page_needs_no_torch_and_training_no_matplotlib() -> None:
    code = "import sys; from certus.cli.main import run; run([{words}]); print({library!r} in sys.modules)"
    for words, library in (("'--help'", "torch"), ("'train', '--help'", "matplotlib")):
        script = code.format(words=words, library=library)
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
        assert done.stdout.splitlines()[-1] == "False", done.stderr


def test_the_version_is_quick() -> None:
    start = time.monotonic()
    subprocess.run([sys.executable, "-m", "certus", "--version"], check=True, capture_output=True)
    assert time.monotonic() - start < 1
