"""Runs of several processes: stopped and continued to the bit, by another number within rounding, one writer."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from distributed.teams import on_team
from distributed.work import train_until
from PIL import Image
from safetensors.torch import load_file

from certus.cli.main import main
from certus.distributed.team import ALONE
from certus.training.run_folder import RunFolder

SETTINGS = {"network": "cnn13-small", "width": 2, "steps": 6, "unlabelled_batch": 300, "validation": 20}


def state(folder: Path) -> dict[str, torch.Tensor]:
    (newest,) = (folder / "checkpoints").iterdir()
    return load_file(newest / "state.safetensors")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`whole` by two processes, `stopped` and continued by two, `other` continued by three, `alone` by one."""
    root = tmp_path_factory.mktemp("runs")
    assert on_team(2, "train_until", str(root / "whole"), SETTINGS) == ["finished"] * 2
    stopped = ["Stopped after step 3 of 6; everything is saved."] * 2
    assert on_team(2, "train_until", str(root / "stopped"), SETTINGS, 3) == stopped
    assert on_team(2, "train_until", str(root / "other"), SETTINGS, 3) == stopped
    assert on_team(2, "train_until", str(root / "stopped"), SETTINGS) == ["finished"] * 2
    assert on_team(3, "train_until", str(root / "other"), SETTINGS) == ["finished"] * 3
    assert train_until(ALONE, str(root / "alone"), SETTINGS) == "finished"
    return root


def test_a_stopped_run_goes_on_to_the_same_bits(runs: Path) -> None:
    whole, stopped = state(runs / "whole"), state(runs / "stopped")
    assert whole.keys() == stopped.keys()
    assert all(torch.equal(whole[name], stopped[name]) for name in whole)


@pytest.mark.parametrize("name", ["other", "alone"])
def test_another_number_of_processes_gives_the_same_run_within_rounding(runs: Path, name: str) -> None:
    whole, other = state(runs / "whole"), state(runs / name)
    assert whole.keys() == other.keys()
    assert all(torch.allclose(whole[n], other[n], rtol=1e-2, atol=1e-3) for n in whole)
    lines, others = RunFolder(runs / "whole").load_metrics(), RunFolder(runs / name).load_metrics()
    assert [line["losses"] for line in lines] == [pytest.approx(line["losses"], rel=1e-2) for line in others]


def test_the_folder_is_that_of_a_run_of_one_process(runs: Path) -> None:
    files = {path.name for path in (runs / "alone").iterdir()}
    assert {path.name for path in (runs / "whole").iterdir()} == files
    assert len(RunFolder(runs / "whole").load_metrics()) == len(RunFolder(runs / "alone").load_metrics())


def test_evaluate_shares_its_images_and_is_the_same(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["evaluate", str(runs / "whole"), "--json"]
    assert main(words) == 0
    alone = json.loads(capsys.readouterr().out)
    for code, out, _, _ in on_team(2, "command", words):
        assert code == 0
        assert json.loads(out) == alone


def test_predict_shares_its_pictures_and_writes_once(runs: Path, tmp_path: Path) -> None:
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    for i in range(300):  # two batches
        values = np.random.default_rng(i).integers(0, 255, (8, 8), dtype=np.uint8)
        Image.fromarray(values).save(pictures / f"{i:03}.png")
    (pictures / "broken.png").write_bytes(b"none")
    words = ["predict", str(runs / "whole"), str(pictures), "--out"]
    assert main([*words, str(tmp_path / "alone.csv")]) == 0
    for code, out, err, _ in on_team(2, "command", [*words, str(tmp_path / "shared.csv")]):
        assert (code, out.split(" in ")[0]) == (0, "300 pictures")
        assert err.count("broken.png was left out") == 1
    assert (tmp_path / "shared.csv").read_bytes() == (tmp_path / "alone.csv").read_bytes()
