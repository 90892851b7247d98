"""certus serve: what is refused before anything is served."""

from __future__ import annotations

import socket
from importlib import util
from pathlib import Path

import pytest
from builders import plain_config

from certus.cli import serve
from certus.cli.main import main
from certus.errors import CertusError, UsageError
from certus.serving.server import address_of, listen
from certus.training.build import build
from certus.training.loop import train
from certus.training.run_folder import RunFolder


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("", "certus serve needs the folder of a run, or an exported"),
        ("nothing", "nothing holds no run"),
        ("nothing.onnx", "There is no file nothing.onnx"),
        ("nothing --host 0.0.0.0", "--host 0.0.0.0 can be reached from other machines, so it needs a --token"),
        ("nothing --token short", "--token must have at least 16 characters"),
        ("nothing --max-waiting 3", "--max-waiting is 3, so a request of --max-pictures 32 could never"),
        ("nothing --max-batch 1000", "--max-batch must be at most 512"),
        ("nothing --latency -1", "--latency must be at least 0"),
        ("nothing --draws -1", "--draws must be at least 0"),
        ("nothing --threads -1", "--threads must be at least 0"),
        ("nothing --port x", "--port must be a whole number"),
    ],
)
def test_wrong_words_are_refused_in_a_sentence(
    words: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CERTUS_TOKEN", raising=False)
    assert main(["serve", *words.split()]) == 2
    shown = capsys.readouterr()
    assert sentence in shown.err
    assert shown.out == ""


def test_the_token_may_come_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CERTUS_TOKEN", "x" * 20)
    assert main(["serve", str(tmp_path / "nothing"), "--host", "0.0.0.0"]) == 2
    assert "holds no run" in capsys.readouterr().err


def test_without_the_extra_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = util.find_spec
    monkeypatch.setattr(serve, "find_spec", lambda name: None if name == "uvicorn" else real(name))
    assert main(["serve", "run"]) == 2
    assert "(uvicorn): run pip install 'certus-ssl[serve]'" in capsys.readouterr().err


def test_a_port_that_is_taken_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(build(plain_config("supervised", data="digits", width=2, steps=1)), RunFolder(tmp_path / "run"))
    with listen("127.0.0.1", 0) as taken:
        assert taken.proto == socket.IPPROTO_TCP  # without it every answer comes 40 ms late
        port = taken.getsockname()[1]
        assert address_of(taken) == f"http://127.0.0.1:{port}"
        assert main(["serve", str(tmp_path / "run"), "--port", str(port)]) == 1
    assert f"Nothing can be served at 127.0.0.1, port {port} (Address already in use)" in capsys.readouterr().err


def test_ports_and_hosts_that_do_not_exist() -> None:
    with pytest.raises(UsageError, match="`port`"):
        listen("127.0.0.1", 70_000)
    with pytest.raises(CertusError, match="Nothing can be served"):
        listen("host.invalid", 0)
