"""Whatever a setting holds, a run file gives it back; a file that was cut or edited is noticed."""

from __future__ import annotations

import os
import tomllib
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from certus.config import Config, resolve
from certus.config.run_file import from_toml, seal_in, seal_of, sealed, to_toml
from certus.config.settings import Altered
from certus.errors import UsageError
from certus.training.planning import complete

ANY = st.characters(exclude_categories=())  # half surrogates too
VALUES = st.one_of(
    st.text(ANY),
    st.binary().map(os.fsdecode),  # a path of any bytes
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
)
TABLES = st.dictionaries(st.text(ANY), VALUES | st.lists(VALUES))


@given(TABLES, TABLES)
def test_everything_comes_back(values: dict[str, object], options: dict[str, object]) -> None:
    whole = {**values, "options": options}
    text = to_toml(whole)
    again = from_toml(text.encode().decode())
    assert again == whole
    assert repr(again) == repr({**whole})  # the types and −0.0 too
    tomllib.loads(text)
    assert seal_in(sealed(whole)) == seal_of(from_toml(sealed(whole)))


@pytest.mark.parametrize(
    "text", ["\U0001f600", "caf\udce9", "\ud83d", "\x7f", "\0", "\0dce9", 'say "hi"\n\\', "\r\n", "\x85"]
)
def test_strings_that_need_care(text: str) -> None:
    assert from_toml(to_toml({"data": text})) == {"data": text}


def test_a_path_is_readable_in_the_file() -> None:
    assert to_toml({"data": "/photos/😀 café"}) == 'data = "/photos/😀 café"\n'


@given(st.floats())
def test_what_is_not_finite_is_neither_accepted_nor_written(value: float) -> None:
    if value - value == 0:
        assert from_toml(to_toml({"noise": value}))["noise"] == value
        return
    with pytest.raises(UsageError, match=r"`noise` is .*, which a run file cannot hold"):
        to_toml({"noise": value})
    for given_ in ({"noise": value}, {"options": {"heat": value}}):
        with pytest.raises(UsageError, match=r"`(noise|heat)` must be "):
            resolve(given_)


@pytest.mark.parametrize("value", [None, (1, 2), {1}, object()])
def test_what_toml_does_not_have_is_refused(value: object) -> None:
    with pytest.raises(UsageError, match=r"`thing` is .*, which a run file cannot hold"):
        to_toml({"thing": value})


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    config = replace(complete(resolve({"data": "moons", "method": "supervised", "steps": 7})), data_dir="/d\udce9")
    path = tmp_path / "config.toml"
    path.write_text(config.text())
    assert Config.read_whole(path) == asdict(config)
    return path


def test_a_file_without_any_one_of_its_lines_is_refused(saved: Path) -> None:
    lines = saved.read_text().splitlines(keepends=True)
    for i, line in enumerate(lines):
        if i and line.strip():
            saved.write_text("".join(lines[:i] + lines[i + 1 :]))
            with pytest.raises(Altered, match="is not as certus wrote it"):
                Config.read_whole(saved)
            Config.read(saved)  # which may leave settings out


def test_a_file_that_was_cut_anywhere_is_refused(saved: Path) -> None:
    whole = saved.read_bytes()
    same = Config.read_whole(saved)
    for length in range(len(whole)):
        saved.write_bytes(whole[:length])
        try:
            assert Config.read_whole(saved) == same  # without the last newline
        except (Altered, UsageError):
            continue


@pytest.mark.parametrize(
    ("old", "new"), [("steps = 7", "steps = 8"), ("dropout = 0.1", "dropout = 0.2"), ("seed = 0", "seed = 1")]
)
def test_an_edited_file_is_refused_and_where_it_runs_may_be_edited(old: str, new: str, saved: Path) -> None:
    text = saved.read_text()
    assert old in text
    saved.write_text(text.replace(old, new))
    with pytest.raises(Altered, match="was edited or cut"):
        Config.read_whole(saved)
    saved.write_text(text.replace("threads = ", "# a remark\nthreads = 1"))
    assert Config.read_whole(saved)["threads"] > 9


def test_a_file_of_the_first_version_has_no_seal_and_needs_the_settings_that_it_had(saved: Path) -> None:
    text = saved.read_text().split("\n", 1)[1]
    newer = ("optimiser", "pace", "warm_up", "label_smoothing", "strong", "strength", "precision")
    saved.write_text("".join(line for line in text.splitlines(keepends=True) if not line.startswith(newer)))
    assert Config.read_whole(saved)["steps"] == 7
    saved.write_text(text.replace("steps = 7\n", ""))
    with pytest.raises(Altered, match="it has no `steps`"):
        Config.read_whole(saved)
