"""What a finished run says of its unlabelled images, against asking its networks one by one."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from certus import model
from certus.certainty.metrics import METRICS
from certus.config import resolve
from certus.data import load
from certus.errors import UsageError
from certus.training import artefacts
from certus.training import evaluation as evaluate
from certus.training.build import build
from certus.training.loop import train
from certus.training.planning import complete
from certus.training.run_folder import RunFolder
from certus.training.threads import threads
from certus.training.unlabelled import answer_unlabelled

DIGITS = {"data": "digits", "labels": 10, "validation": 50, "width": 2, "labelled_batch": 10, "unlabelled_batch": 100}


def make(path: Path, **given: object) -> RunFolder:
    folder = RunFolder(path)
    train(build(complete(resolve({**DIGITS, "steps": 3, "threads": 1, **given}))), folder)
    return folder


def contents(folder: RunFolder) -> dict[Path, tuple[bytes, int]]:
    files = (p for p in folder.path.rglob("*") if p.is_file())
    return {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in files}


@pytest.mark.parametrize("unlabelled", [0, 300])
def test_every_unlabelled_image_is_asked_once_and_nothing_else_changes(tmp_path: Path, unlabelled: int) -> None:
    folder = make(tmp_path, method="ft-ccl", seed=3, unlabelled=unlabelled, options={"draws": "2", "teachers": 2})
    before, random = contents(folder), torch.get_rng_state()
    answer_unlabelled(folder)
    assert torch.equal(torch.get_rng_state(), random)
    after = contents(folder)
    assert {p: c for p, c in after.items() if p in before} == before
    assert after.keys() - before.keys() == {folder.unlabelled}

    answers, drawn = load_file(folder.unlabelled), json.loads(folder.split.read_text())
    data, trained = load("digits"), model.load(folder.path)
    own = build(folder.load_config()).split.unlabelled
    if not unlabelled:
        others = set(range(len(data.train))) - set(drawn["labelled"]) - set(drawn["validation"])
        assert own.tolist() == sorted(others)
    assert len(answers["labels"]) == drawn["unlabelled"] == len(own)
    assert torch.equal(answers["labels"], data.train.labels[own])
    assert answers.keys() == load_file(folder.predictions).keys() == {"probabilities", "labels", "witness", *METRICS}
    images = data.train.images[own]
    with threads(1):
        naive = [evaluate.probabilities(net, trained.normalised, images) for net in trained.nets]
        draws = evaluate.uncertainties(trained.nets[:1], trained.normalised, images, passes=10, seed=3)
    assert len(naive) == 2
    torch.testing.assert_close(answers["probabilities"], torch.stack(naive))
    for name in METRICS:
        torch.testing.assert_close(answers[name], draws[name])


def test_a_second_question_is_not_asked(tmp_path: Path) -> None:
    folder = make(tmp_path, method="supervised")
    answer_unlabelled(folder)
    before = contents(folder)
    answer_unlabelled(folder)
    assert contents(folder) == before


def test_a_network_without_dropout_has_probabilities_alone(tmp_path: Path) -> None:
    folder = make(tmp_path, method="supervised", dropout=0.0)
    answer_unlabelled(folder)
    assert load_file(folder.unlabelled).keys() == {"probabilities", "labels"}


def test_what_a_run_started_from_is_not_asked_for(tmp_path: Path) -> None:
    turns = make(tmp_path / "turns", method="rotation")
    folder = make(tmp_path / "run", method="supervised", init=str(turns.path))
    turns.path.rename(tmp_path / "gone")
    answer_unlabelled(folder)
    assert folder.unlabelled.is_file()


def test_a_file_that_cannot_be_written_whole_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make(tmp_path, method="supervised")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        answer_unlabelled(folder)
    assert not folder.unlabelled.exists()


def test_images_without_a_known_label_are_left_out(tmp_path: Path) -> None:
    for name in ("cat", "dog", "unlabeled"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(10):
            shade = 40 * (name == "dog") + 7 * i
            Image.new("RGB", (16, 16), (shade, 90, 255 - shade)).save(tmp_path / "photos" / name / f"{i}.png")
    photos = {"data": str(tmp_path / "photos"), "labelled_batch": 4, "unlabelled_batch": 6, "method": "mean-teacher"}
    some = make(tmp_path / "some", labels=6, validation=4, **photos)
    answer_unlabelled(some)
    answers = load_file(some.unlabelled)
    assert json.loads(some.split.read_text())["unlabelled"] == 20
    assert len(answers["labels"]) == answers["probabilities"].shape[1] == 10
    assert set(answers["labels"].tolist()) == {0, 1}

    none = make(tmp_path / "none", labels=0, validation=4, **photos)
    before = contents(none)
    with pytest.raises(UsageError, match=r"No unlabelled image of .* has a known label"):
        answer_unlabelled(none)
    assert contents(none) == before


def test_what_cannot_be_asked_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no run"):
        answer_unlabelled(RunFolder(tmp_path / "nothing"))
    unfinished = RunFolder(tmp_path / "unfinished")
    unfinished.create(build(complete(resolve({**DIGITS, "method": "supervised", "steps": 3}))))
    with pytest.raises(UsageError, match="is not finished"):
        answer_unlabelled(unfinished)
    with pytest.raises(UsageError, match="is a pretraining run"):
        answer_unlabelled(make(tmp_path / "turns", method="rotation"))
    changed = make(tmp_path / "changed", method="supervised")
    drawn = {k: v for k, v in json.loads(changed.split.read_text()).items() if k != artefacts.CHECK}
    for key, value in (("fingerprint", "0" * 16), ("labelled", drawn["labelled"][1:])):
        changed.split.write_text(json.dumps(artefacts.sealed({**drawn, key: value})))
        with pytest.raises(UsageError, match="has changed since"):
            answer_unlabelled(changed)
        assert not changed.unlabelled.exists()
