"""The curves for TensorBoard have the numbers of metrics.jsonl, each once."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from builders import plain_run

from certus.cli.main import main
from certus.training.loop import Progress, Tick, train
from certus.training.run_folder import RunFolder
from certus.training.tensorboard import board, histograms, scalars

RUN = {"width": 4, "labelled_batch": 6, "unlabelled_batch": 200, "validation": 50, "steps": 12}


def events(path: Path) -> Any:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found = accumulator.EventAccumulator(str(path), size_guidance={"scalars": 0, "histograms": 0})
    return found.Reload()


def test_a_resumed_run_has_every_epoch_once(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    folder, run = RunFolder(tmp_path / "run"), plain_run("ft-ccl", **RUN)
    folder.create(run)
    progress = Progress.of(run, folder, observe=True)
    with board(folder, tmp_path / "board") as listen:
        for number in range(11):
            listen(progress.advance())
            if number == 6:
                progress.save()  # the epoch that ends after this is trained again
    other = tmp_path / "board" / "run" / "events.out.tfevents.of-somebody-else"
    other.touch()
    with board(folder, tmp_path / "board") as listen:
        train(plain_run("ft-ccl", **RUN), folder, listen)
    assert other.exists()
    other.unlink()
    found, records = events(tmp_path / "board" / "run"), folder.load_metrics()
    assert len(records) == 3
    assert set(found.Tags()["scalars"]) == set(scalars(records[0]))
    for name in found.Tags()["scalars"]:
        points = found.Scalars(name)
        assert [point.step for point in points] == [5, 10, 12]
        assert [point.value for point in points] == pytest.approx([scalars(record)[name] for record in records])
    kept = [record["targets"]["consistency"]["kept"]["all"] for record in records]
    assert [point.value for point in found.Scalars("kept targets/consistency all")] == pytest.approx(kept)
    assert {"loss/supervised", "rate/learning rate", "validation error/mean"} <= set(scalars(records[0]))
    (labelled, unlabelled) = sorted(found.Tags()["histograms"])
    assert labelled == "uncertainty spread/consistency labelled"
    for point, record in zip(found.Histograms(unlabelled), records, strict=True):
        quantiles = record["targets"]["consistency"]["uncertainty"]["unlabelled"]["quantiles"]
        assert point.histogram_value.bucket_limit == pytest.approx(quantiles)
        assert point.histogram_value.bucket == pytest.approx([0, 20, 25, 25, 20])


def test_an_epoch_without_targets_has_losses_alone() -> None:
    record = {"losses": {"supervised": 0.5}, "validation_error": None}
    assert scalars(record) == {"loss/supervised": 0.5}
    assert histograms({**record, "targets": {"consistency": {"uncertainty": {"labelled": None}}}}) == {}


def test_without_a_folder_nothing_is_written(tmp_path: Path) -> None:
    with board(RunFolder(tmp_path), None) as listen:
        listen(Tick(1, 1, 1, 1, {}, 1.0, None))
    assert not list(tmp_path.iterdir())


def test_a_missing_package_is_named_before_anything_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    words = ["train", "--data", "moons", "--out", str(tmp_path / "run"), "--tensorboard", str(tmp_path)]
    assert main(words) == 2
    assert "--tensorboard needs the package tensorboard: run `pip install 'certus-ssl[tensorboard]'`" in (
        capsys.readouterr().err
    )
    assert not list(tmp_path.iterdir())
