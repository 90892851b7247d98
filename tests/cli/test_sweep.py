"""certus sweep, as a user types it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from experiments.inline import Inline

from certus.cli.main import main
from certus.experiments import sweep as sweeps
from certus.training.lock import NAME
from certus.training.loop import Listen, both
from certus.training.run_folder import RunFolder

WORDS = [
    *"sweep --data moons --methods supervised,pi --trials 1 --width 4 --labelled-batch 6".split(),
    *"--unlabelled-batch 100 --validation 50 --workers 1 --out out --epochs 20".split(),
    *"--set weight=1..30:log learning-rate=0.02..0.2".split(),
]


def test_a_sweep_that_was_killed_goes_on_and_ends_in_a_run_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    process = subprocess.Popen([sys.executable, "-m", "certus", *WORDS], stderr=subprocess.PIPE, text=True)
    begun = RunFolder(Path("out/trials/supervised-000-seed0"))
    while not (begun.metrics.exists() and begun.metrics.read_text().count("\n") > 2):
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.kill()
    process.communicate()
    while not (done := begun.saved_step()):  # its worker has seen that, and saves
        time.sleep(0.01)
    while (begun.path / NAME).exists():
        time.sleep(0.01)
    assert done < 180
    started = begun.config.stat().st_mtime_ns

    steps: list[int] = []
    train = sweeps.train_trial
    monkeypatch.setattr(
        sweeps, "train_trial", lambda cell, listen, **more: train(cell, both(listen, steps_of(steps)), **more)
    )
    monkeypatch.setattr(sweeps, "open_pool", Inline)
    assert main(WORDS) == 0
    shown = capsys.readouterr()
    assert steps == [*range(done + 1, 181), *range(1, 181)]  # from the checkpoint, and then the other method
    assert begun.config.stat().st_mtime_ns == started
    assert len(begun.load_metrics()) == 20
    assert "pi trial 0  weight " in shown.err
    assert "Train with the best settings: certus train --config out/best-pi.toml" in shown.out
    results = json.loads(Path("out/results.json").read_text())
    (best,) = results["pi"]["trials"]
    assert results["pi"]["best"] == {"trial": 0, "values": best["values"]}
    assert all(f"certus: {warning}" in shown.err for warning in results["pi"]["warnings"])

    assert main(["train", "--config", "out/best-pi.toml", "--out", "run", "--json"]) == 0
    trained = json.loads(capsys.readouterr().out)
    assert trained["validation_error"] == best["error"]  # the same run, and now its test error
    assert trained["test_error"] is not None


def steps_of(steps: list[int]) -> Listen:
    return lambda tick: steps.append(tick.step)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--set wieght=1,2", "There is no setting or option of these methods 'wieght'. Did you mean 'weight'?"),
        ("--set weight=3..2", "--set gives weight an empty range: 3.0 is not less than 2.0."),
        ("--set dropout=0.1..2", "--dropout must be between 0 and 0.95, but is 2."),
        ("", "--set is missing"),
        ("--set weight=1,2 ramp=0,9 --trails 4", "There is no option '--trails'. Did you mean '--trials'?"),
        ("--set weight=1,2 ramp=0,9 --trials x", "--trials must be a whole number, but is 'x'."),
        ("--set weight=1,2 --methods pi,vat --method pi", "Give only one of --method and --methods."),
        ("--set weight=1,2 --workers 0", "--workers must be at least 1, but is 0."),
        ("--set weight=1,2 --minutes 0", "--minutes must be more than 0, but is 0."),
        ("--set weight=1,2 --steps 3 --epochs 2", "Give only one of --steps, --epochs."),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(
    words: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["sweep", "--data", "moons", *words.split()]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith(f"certus: {message}")
    assert not list(tmp_path.rglob("config.toml"))


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert main(["sweep", "--data", "moons", "--set", "weight=1,2"]) == 2
    assert "certus: A sweep needs the package optuna: run `pip install 'certus-ssl[sweep]'`." in capsys.readouterr().err
