"""Every setting and every option of every method with odd values: a sentence, or a run that can be opened again."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import fields
from pathlib import Path

import pytest
from faults.campaign import SEED, Outcome, chosen, tell

from certus.cli.flags import flag_names, flags_of, spelled
from certus.cli.main import COMMANDS, module
from certus.config import Config
from certus.experiments import compare
from certus.methods import METHODS

TEXTS = (
    *("0", "-0.0", "-1", "1", "0.5", "inf", "-inf", "nan", "1e308", "1e-320", "1000000000", "10000000001"),
    *("9" * 5000, "", " ", "x", "None", "[bold]", "a$\\frac{$b", "\udce9", "🐱"),
)
TOML = ('"x"', '""', "0", "-1", "1.5", "inf", "nan", "true", "[1]", "{a = 1}", "1979-05-27", "9" * 5000, '"\\u0000"')
SHORT = 30  # cases of each test, unless at full length
QUICK = "--data moons --steps 1 --width 4 --labelled-batch 6 --unlabelled-batch 20 --threads 1".split()


def without(words: list[str], name: str) -> list[str]:
    """The words without this flag and its value."""
    pairs = zip(words[::2], words[1::2], strict=True)
    return [word for flag, value in pairs if flag != spelled(name) for word in (flag, value)]


def trained(words: list[str], out: Path, counts: Counter[str]) -> None:
    """Train a run with these words: a sentence, or a run that can be opened again."""
    shutil.rmtree(out, ignore_errors=True)
    outcome = Outcome(["train", *words, "--out", str(out)])
    outcome.check()
    counts[outcome.kind] += 1
    if not outcome.code:
        again = Outcome(["train", "--resume", str(out)])
        assert again.code == 0, again.err
        assert "already finished" in again.err


PROPER = {("minutes", "0.5"), ("minutes", "1"), ("steps", "0")}  # runs that only take time
SETTINGS = [
    *(f.name for f in fields(Config) if f.name != "options"),
    *("epochs", "save_seconds", "config", "resume", "minutes"),
]


def test_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    counts: Counter[str] = Counter()
    for name, value in chosen([(n, v) for n in SETTINGS for v in TEXTS], SHORT, "settings"):
        length = "steps" if name in ("epochs", "minutes") else name
        if (name, value) in PROPER:
            continue
        try:
            trained([*without(without(QUICK, length), name), f"{spelled(name)}={value}"], tmp_path / "run", counts)
        except BaseException as e:
            raise AssertionError(f"seed {SEED}: {spelled(name)} {value[:40]!r}") from e
    tell(capsys, "settings with odd values", counts)


def test_options_of_methods(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    counts: Counter[str] = Counter()
    cases = [(m, n, v) for m, known in METHODS.items() for n in known.defaults() for v in TEXTS]
    for method, name, value in chosen(cases, SHORT, "options"):
        try:
            trained([*QUICK, "--method", method, f"{spelled(name)}={value}"], tmp_path / "run", counts)
        except BaseException as e:
            raise AssertionError(f"seed {SEED}: {method} {spelled(name)} {value[:40]!r}") from e
    tell(capsys, "options with odd values", counts)


def test_run_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    counts: Counter[str] = Counter()
    known = {"ft-ccl", "vat", "dual-student", "label-propagation"}
    options = [(f"[options]\n{n}", m) for m in sorted(known) for n in METHODS[m].defaults()]
    plain = [(f.name, "ft-ccl") for f in fields(Config)]
    file = tmp_path / "config.toml"
    for (name, method), value in chosen([(n, v) for n in plain + options for v in TOML], SHORT, "run files"):
        file.write_text(f"{name} = {value}\n", encoding="utf-8")
        words = [*without(QUICK, name), "--method", method, "--config", str(file)]
        try:
            trained(words if name != "method" else without(words, "method"), tmp_path / "run", counts)
        except BaseException as e:
            raise AssertionError(f"seed {SEED}: {name} = {value[:40]}, {method}") from e
    tell(capsys, "run files with odd values", counts)


FIRST = {  # words that a command needs, so that it is quick and trains nothing large
    "compare": "--data moons --methods supervised --seeds 1 --epochs 0.01 --width 4".split(),
    "paper": ["table1", "--finished"],
    "evaluate": ["missing-run"],
    "calibrate": ["missing-run"],
    "export": ["missing-run"],
    "predict": ["missing-run", "."],
    "report": ["missing-run"],
    "serve": ["missing-run"],
    "card": ["missing-run"],
}


def test_flags_of_other_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CERTUS_DATA", str(tmp_path))
    monkeypatch.setattr(compare, "run_cells", lambda *_: ({}, {}))  # tests/experiments train comparisons
    counts: Counter[str] = Counter()
    taught = flag_names(module("train").Options)
    cases = [
        (command, flag, value)
        for command in COMMANDS
        for flag in flags_of(module(command).Options)
        if flag.kind is not bool and (flag.metavar or flag.name not in taught)
        if command not in ("train", "pretrain") and (command, flag.name) != ("data", "action")  # which may download
        for value in TEXTS
    ]
    for command, flag, value in chosen(cases, SHORT, "flags"):
        first = FIRST.get(command, [])
        if flag.metavar:
            words = [value]
        else:
            words = [*(without(first, flag.name) if command == "compare" else first), f"{spelled(flag.name)}={value}"]
        try:
            outcome = Outcome([command, *words])
            outcome.check()
        except BaseException as e:
            raise AssertionError(f"seed {SEED}: {command} {spelled(flag.name)} {value[:40]!r}") from e
        counts[outcome.kind] += 1
    tell(capsys, "flags of other commands with odd values", counts)
