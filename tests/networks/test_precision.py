"""bfloat16 is tried in a child process, and what it found is kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from certus.errors import UsageError
from certus.networks import precision
from certus.networks.precision import Probe, autocast, decide_precision, probe, try_in_child


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    probe.cache_clear()


def found(monkeypatch: pytest.MonkeyPatch, answer: Probe) -> None:
    monkeypatch.setattr(precision, "try_in_child", lambda: answer)


@pytest.mark.parametrize(
    ("answer", "asked", "expected"),
    [
        (Probe(True, 1.7), "auto", "bf16"),
        (Probe(True, 1.1), "auto", "fp32"),
        (Probe(True, 0.4), "bf16", "bf16"),
        (Probe(False, 0.0, "signal 4"), "auto", "fp32"),
        (Probe(True, 1.7), "fp32", "fp32"),
    ],
)
def test_auto_takes_bf16_where_it_gains(
    monkeypatch: pytest.MonkeyPatch, answer: Probe, asked: str, expected: str
) -> None:
    found(monkeypatch, answer)
    assert decide_precision(asked, "cpu") == expected


def test_what_cannot_be_done_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    found(monkeypatch, Probe(False, 0.0, "the trial ended with signal 4"))
    with pytest.raises(UsageError, match=r"bf16 does not work on this processor .the trial ended with signal 4"):
        decide_precision("bf16", "cpu")
    with pytest.raises(UsageError, match="must be auto, fp32 or bf16, but is 'fp16'"):
        decide_precision("fp16", "cpu")


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGILL)", "signal 4"),
        ("raise SystemExit(3)", "exit code 3"),
        ("print('no number')", "gave no answer"),
    ],
)
def test_a_child_that_dies_is_a_no(program: str, why: str) -> None:
    answer = try_in_child(program)
    assert not answer.works
    assert why in answer.why


def test_the_trial_itself_gives_a_number() -> None:
    answer = try_in_child()
    assert answer.works == (answer.gain > 0)


def test_the_answer_is_kept_and_a_damaged_cache_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(precision, "try_in_child", lambda: asked.append(1) or Probe(True, 1.5))
    for _ in range(2):
        assert probe() == Probe(True, 1.5)
        probe.cache_clear()
    assert len(asked) == 1
    file = tmp_path / "certus" / "precision.json"
    assert list(json.loads(file.read_text()).values()) == [{"works": True, "gain": 1.5, "why": ""}]
    for damaged in ("", "[]", '{"x": 1}'):
        file.write_text(damaged)
        assert probe() == Probe(True, 1.5)
        probe.cache_clear()
    assert len(asked) == 4


def test_without_a_place_to_keep_it_nothing_breaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    found(monkeypatch, Probe(True, 1.5))
    assert probe() == Probe(True, 1.5)


def test_forward_is_in_bf16_and_weights_stay_in_fp32() -> None:
    if not try_in_child().works:
        pytest.skip("bf16 does not work here")
    net = torch.nn.Linear(8, 8)
    with autocast("bf16", "cpu"):
        y = net(torch.randn(4, 8))
    assert y.dtype == torch.bfloat16
    y.float().sum().backward()
    assert net.weight.grad is not None
    assert net.weight.grad.dtype == torch.float32
    with autocast("fp32", "cpu"):
        assert net(torch.randn(4, 8)).dtype == torch.float32
