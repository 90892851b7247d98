"""Flags: parsed once, None if they are not given, refused in one sentence, named in errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from certus.cli.flags import Flag, argument, flag, flag_names, flags_of, many, parse, parser_type, with_flags
from certus.cli.main import COMMANDS, module
from certus.cli.settings import config_flags, option_flags
from certus.config import Config
from certus.errors import UsageError
from certus.methods import METHODS


@dataclass(frozen=True)
class Options:
    """An example."""

    run: Path | None = argument("RUN", "a folder")  # noqa: RUF009
    settings: Mapping[str, Any] = many([Flag("label_noise", float, ""), Flag("flip", bool, "", "off")])
    epochs: float | None = flag("how long")
    seeds: int = flag("how many", 5)
    json: bool = flag("as JSON", False)


def options(words: str) -> Options:
    return parse("example", Options, words.split())


def test_a_flag_that_was_not_given_is_none_and_not_among_the_settings() -> None:
    assert options("") == Options(run=None, settings={}, epochs=None, seeds=5, json=False)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--epochs 3", Options(epochs=3.0)),
        ("--epochs=3", Options(epochs=3.0)),
        ("--seeds 0", Options(seeds=0)),
        ("--seeds 5 --seeds 6", Options(seeds=6)),
        ("--label-noise 0", Options(settings={"label_noise": 0.0})),
        ("--label_noise -1", Options(settings={"label_noise": -1.0})),
        ("--label_noise=.5 --flip", Options(settings={"label_noise": 0.5, "flip": True})),
        ("--no-flip", Options(settings={"flip": False})),
        ("--no_flip", Options(settings={"flip": False})),
        ("folder --json", Options(run=Path("folder"), json=True)),
        ("--json folder", Options(run=Path("folder"), json=True)),
    ],
)
def test_what_was_typed_is_what_is_parsed(words: str, expected: Options) -> None:
    assert options(words) == expected


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--sedes 3", "There is no option '--sedes'. Did you mean '--seeds'?"),
        ("--sedes=3", "There is no option '--sedes'. Did you mean '--seeds'?"),
        ("--no-epochs", "There is no option '--no-epochs'."),
        ("-s 3", "There is no option '-s'."),
        ("--seeds many", "--seeds must be a whole number, but is 'many'."),
        ("--seeds 2.5", "--seeds must be a whole number, but is '2.5'."),
        ("--label_noise=none", "--label_noise must be a number, but is 'none'."),
        ("--flip --seeds", "--seeds needs a value."),
        ("--seeds --flip", "--seeds needs a value."),
        ("--json one two", "certus example does not understand 'two'."),
    ],
)
def test_what_cannot_be_parsed_is_refused_in_one_sentence(
    words: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError) as refused:
        options(words)
    assert str(refused.value).startswith(sentence)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("`label_noise` must be at least 0.", "--label-noise must be at least 0."),
        ("Give `seeds`, or `epochs` 3.", "Give --seeds, or --epochs 3."),
        ("use `no_flip`, not `flip`", "use --no-flip, not --flip"),
        (
            "`certus data` lists them; `other` and `no_other` stay",
            "`certus data` lists them; `other` and `no_other` stay",
        ),
        ("flip without backticks, and `a` lone ` stay", "flip without backticks, and `a` lone ` stay"),
        ("", ""),
    ],
)
def test_settings_in_backticks_become_flags(text: str, expected: str) -> None:
    assert with_flags(text, {"label_noise", "seeds", "epochs", "flip"}) == expected


def test_a_plug_in_cannot_take_the_flag_of_a_setting() -> None:
    @dataclass(frozen=True)
    class Clash:
        settings: Mapping[str, Any] = many([Flag("width", int, "")])
        method_options: Mapping[str, Any] = many([Flag("width", float, ""), Flag("beta", float, "")])

    assert parse("example", Clash, ["--width", "3", "--beta", "1"]) == Clash({"width": 3}, {"beta": 1.0})


def test_positional_arguments_are_not_flags() -> None:
    assert flag_names(Options) == {"label_noise", "flip", "epochs", "seeds", "json"}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_flag_of_a_command_is_none_or_its_constant_default(command: str) -> None:
    kind = module(command).Options
    parsed, hints = parse(command, kind, []), get_type_hints(kind)
    for f in fields(kind):
        value = getattr(parsed, f.name)
        if f.default is MISSING:
            assert value == {}
        else:
            assert value == f.default
            assert value is not None or type(None) in hints[f.name].__args__
    names = [f.name for f in flags_of(kind)]
    assert len(names) == len(set(names))


def test_every_setting_and_every_option_of_a_method_is_a_flag_of_train() -> None:
    names = {f.name for f in flags_of(module("train").Options)}
    assert {f.name for f in fields(Config)} - {"options"} <= names
    for method in METHODS.values():
        assert method.defaults().keys() <= names


def test_an_option_has_one_type_in_all_methods() -> None:
    kinds = {f.name: f.kind for f in option_flags()}
    for method in METHODS.values():
        hints = get_type_hints(method.options)
        assert {f.name: hints[f.name] for f in fields(method.options)}.items() <= kinds.items()


def test_settings_can_be_left_out_and_stand_by_group() -> None:
    names = [f.name for f in config_flags("seed", "data")]
    assert "seed" not in names
    assert "data" not in names
    groups = [f.group for f in config_flags()]
    assert len(list(dict.fromkeys(groups))) == sum(a != b for a, b in zip(groups, [None, *groups[:-1]], strict=True))


def test_a_switch_that_may_be_auto() -> None:
    kind = module("train").Options
    for words, expected in (
        ("--flip auto", "auto"),
        ("--flip=auto", "auto"),
        ("--flip", True),
        ("--no-flip", False),
        ("--flip auto --mirror", "auto"),
    ):
        assert parse("train", kind, [*words.split(), "--data", "auto"]).settings["flip"] == expected
    with pytest.raises(UsageError, match="does not understand 'auto'"):
        parse("train", kind, ["--balanced", "auto"])


def test_a_command_is_described_to_the_parser_once() -> None:
    """It keeps what it learns of a type for ever, so that a program that calls certus often would grow."""
    options = module("train").Options
    assert parser_type(options) is parser_type(options)
