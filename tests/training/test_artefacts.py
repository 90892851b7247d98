"""A run's files carry a checksum; without one, names, types and ranges are checked."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch

from certus.errors import CertusError
from certus.training import artefacts
from certus.training.artefacts import opened, read_answers, read_record, sealed, tensor_bytes
from certus.training.run_folder import RunFolder

GOOD = {"classes": ["a", "caf\udce9"], "shape": [1, 8, 8], "mean": [0.5], "std": [2.0]}
LINES = [{"epoch": i, "step": 3 * i, "losses": {"supervised": 0.5}} for i in (1, 2, 3)]


def test_a_record_comes_back_without_its_checksum() -> None:
    assert opened(json.dumps(sealed(GOOD)), artefacts.MODEL) == GOOD
    assert opened(json.dumps(GOOD), artefacts.MODEL) == GOOD  # of an older version


def test_a_number_that_is_not_finite_is_written_as_null() -> None:
    assert sealed({"a": float("nan"), "b": [float("inf")]}) == sealed({"a": None, "b": [None]})


@pytest.mark.parametrize("key", GOOD)
def test_a_changed_value_is_noticed(key: str) -> None:
    with pytest.raises(ValueError, match="checksum"):
        opened(json.dumps({**sealed(GOOD), key: GOOD[key] * 2}), artefacts.MODEL)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it is empty"),
        ("[]", "it is no record"),
        ("{", "Expecting"),
        ("\xff", "Expecting"),
        (b"\xff{}", "decode|utf"),
        ("[" * 100_000, "nested too deeply|recursion"),
        ('{"classes": NaN}', "not finite"),
        ('{"classes": 1e999}', "not finite"),
        (f'{{"classes": {"9" * 5000}}}', "too large"),
        ('{"classes": 9007199254740993}', "too large"),
        ("{}", "has no `classes`"),
        ('{"classes": "ab", "shape": [1], "mean": [0], "std": [1]}', "`classes` is no list"),
        ('{"classes": ["a"], "shape": [true], "mean": [0], "std": [1]}', r"`shape\[0\]` is True"),
        ('{"classes": ["a"], "shape": [1.5], "mean": [0], "std": [1]}', r"`shape\[0\]` is 1.5"),
    ],
)
def test_reasons(text: str | bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        opened(text, artefacts.MODEL)


def test_the_error_names_the_file_and_a_way_out(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    for made in (lambda: path.write_bytes(b"\xff"), path.unlink, path.mkdir):
        made()
        with pytest.raises(CertusError, match=rf"{path} .*: remove it\."):
            read_record(path, artefacts.MODEL, "remove it")


@pytest.mark.parametrize("wrong", [{"shape": [1, 8]}, {"std": [0.0]}, {"mean": [0.5, 1]}, {"shape": [0, 8, 8]}])
def test_a_model_whose_shape_and_scale_do_not_fit(tmp_path: Path, wrong: dict[str, Any]) -> None:
    folder = RunFolder(tmp_path)
    folder.model.write_text(json.dumps({**GOOD, **wrong}))
    with pytest.raises(CertusError, match=r"model\.json is damaged"):
        folder.load_model()


def test_answers(tmp_path: Path) -> None:
    good = {"probabilities": torch.full((2, 3, 2), 0.5), "labels": torch.tensor([0, 1, 1]), "pe": torch.ones(3)}
    data, path = tensor_bytes(good), tmp_path / "a"
    path.write_bytes(data)
    assert all(torch.equal(read_answers(path, "")[name], t) for name, t in good.items())
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(CertusError, match="checksum"):
        read_answers(path, "remove it")
    for wrong in (
        {"labels": torch.tensor([0, 1, 2])},
        {"labels": torch.tensor([0, 1])},
        {"labels": torch.zeros(3)},
        {"probabilities": torch.ones(3, 2)},
        {"probabilities": torch.full((2, 3, 2), torch.nan)},
        {"pe": torch.ones(2)},
    ):
        path.write_bytes(tensor_bytes({**good, **wrong}))
        with pytest.raises(CertusError, match="is damaged"):
            read_answers(path, "remove it")


@pytest.fixture
def metrics(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path)
    for line in LINES:
        folder.append_metrics(line)
    return folder


def test_metrics(metrics: RunFolder) -> None:
    assert metrics.load_metrics() == LINES
    whole = metrics.metrics.read_text()
    metrics.metrics.write_text(whole + '{"epoch": 4')  # being written
    assert metrics.load_metrics() == LINES
    for damaged in (whole.replace('"step": 6', '"step": 7'), whole + whole, whole.replace("\n", "\n\n", 1)):
        metrics.metrics.write_text(damaged)
        with pytest.raises(CertusError, match=r"metrics\.jsonl is damaged in line \d"):
            metrics.load_metrics()


def test_lines_that_a_resumed_run_drops_are_counted(metrics: RunFolder, caplog: pytest.LogCaptureFixture) -> None:
    metrics.keep_metrics(9)
    assert not caplog.records
    whole = metrics.metrics.read_text()
    metrics.metrics.write_text(whole.replace('"step": 3', '"step": 4') + '{"epoch": 4')
    with caplog.at_level(logging.WARNING, "certus"):
        metrics.keep_metrics(6, 2)
    assert [record.message.split(": ", 1)[1] for record in caplog.records] == [
        "dropped 1 line of epochs after the checkpoint, which are trained again.",
        "dropped 2 lines that were damaged.",
        "1 of the 2 epochs so far are missing.",
    ]
    assert metrics.load_metrics() == LINES[1:2]
