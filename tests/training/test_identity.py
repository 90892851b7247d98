"""A run continues from its own checkpoint alone: with the same settings, on the same split, with the same model."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from builders import same_state

import certus
from certus.config import Config, resolve
from certus.errors import CertusError
from certus.training import checkpoint
from certus.training.build import build
from certus.training.identity import identity
from certus.training.loop import Progress, train
from certus.training.planning import complete
from certus.training.run_folder import RunFolder

SETTINGS = {
    "data": "digits",
    "network": "cnn13-small",
    "method": "mean-teacher",
    "labels": 20,
    "validation": 20,
    "width": 2,
    "threads": 1,
    "labelled_batch": 10,
    "unlabelled_batch": 50,
    "steps": 6,
    "label_noise": 0.1,
}


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was stopped after three of six steps."""
    folder = RunFolder(tmp_path_factory.mktemp("begun") / "run")
    run = build(complete(resolve(SETTINGS)))
    folder.create(run)
    progress = Progress(run, folder)
    for _ in range(3):
        progress.advance()
    progress.save()
    return folder.path


@pytest.fixture
def folder(begun: Path, tmp_path: Path) -> RunFolder:
    return RunFolder(Path(shutil.copytree(begun, tmp_path / "run")))


def edit(folder: RunFolder, name: str, value: str) -> None:
    lines = folder.config.read_text().splitlines()
    (place,) = (i for i, line in enumerate(lines) if line.startswith(f"{name} = "))
    lines[place] = f"{name} = {value}"
    folder.config.write_text("\n".join(lines) + "\n")


def unsealed(folder: RunFolder) -> None:
    folder.config.write_text(folder.config.read_text().split("\n", 1)[1])


def resume(folder: RunFolder) -> object:
    return certus.train(resume=folder.path)


EDITS = {
    "learning_rate": ("0.25", "`learning_rate` is 0.25, but was "),
    "steps": ("9", "`steps` is 9, but was 6"),
    "label_noise": ("0.3", r"`label_noise` is 0\.3, but was 0\.1"),
    "labelled_batch": ("11", "`labelled_batch` is 11, but was 10"),
    "seed": ("1", "`seed` is 1, but was 0"),
    "labels": ("30", "`labels` is 30, but was 20"),
    "dropout": ("0.4", r"`dropout` is 0\.4, but was "),
    "width": ("3", "`width` is 3, but was 2"),
    "weight": ("3.5", r"`weight` is 3\.5, but was "),
}


@pytest.mark.parametrize("open_run", [resume, lambda folder: certus.load(folder.path)], ids=["resume", "load"])
@pytest.mark.parametrize("seal", [True, False])
@pytest.mark.parametrize("name", EDITS)
def test_an_edited_setting_is_named(
    name: str, seal: bool, open_run: Callable[[RunFolder], object], folder: RunFolder
) -> None:
    value, words = EDITS[name]
    edit(folder, name, value)
    if not seal:
        unsealed(folder)
    with pytest.raises(CertusError, match=words) as error:
        open_run(folder)
    assert "Restore" in str(error.value)


@pytest.mark.parametrize("seal", [True, False])
@pytest.mark.parametrize("name", EDITS)
def test_an_edited_setting_is_named_before_there_is_a_checkpoint_too(name: str, seal: bool, folder: RunFolder) -> None:
    """The run was killed before its first save."""
    shutil.rmtree(folder.checkpoints)
    value, words = EDITS[name]
    edit(folder, name, value)
    if not seal:
        unsealed(folder)
    with pytest.raises(CertusError, match=words):
        resume(folder)
    assert not folder.is_old()
    assert not folder.checkpoints.exists()


def test_other_labels_and_another_model_are_noticed_before_there_is_a_checkpoint_too(folder: RunFolder) -> None:
    shutil.rmtree(folder.checkpoints)
    run = build(folder.load_config())
    labels = run.labels.clone()
    labels[run.split.labelled[0]] = (labels[run.split.labelled[0]] + 1) % 10
    with pytest.raises(CertusError, match="images or labels are not those"):
        Progress.of(replace(run, labels=labels), folder, observe=False)
    run.method.state.register_buffer("another", torch.zeros(1))
    with pytest.raises(CertusError, match="is of another model"):
        Progress.of(run, folder, observe=False)


def test_a_missing_setting_is_named(folder: RunFolder) -> None:
    lines = folder.config.read_text().splitlines(keepends=True)
    folder.config.write_text("".join(line for line in lines if not line.startswith("warm_up")))
    for open_run in (resume, lambda folder: certus.load(folder.path)):
        with pytest.raises(CertusError, match=r"`warm_up` is missing\. Restore it, or start a new run with `config`"):
            open_run(folder)


def test_a_cut_file_is_refused_before_there_is_a_checkpoint_too(folder: RunFolder) -> None:
    shutil.rmtree(folder.checkpoints)
    lines = folder.config.read_text().splitlines(keepends=True)
    folder.config.write_text("".join(lines[:20]))
    with pytest.raises(CertusError, match="is not as certus wrote it"):
        resume(folder)


def test_threads_may_be_edited_to_answer_but_not_to_go_on(folder: RunFolder) -> None:
    edit(folder, "threads", "2")
    assert certus.load(folder.path).shape == (1, 8, 8)
    with pytest.raises(CertusError, match="`threads` is 2, but was 1"):
        resume(folder)


def test_the_data_may_be_moved(folder: RunFolder, tmp_path: Path) -> None:
    edit(folder, "data_dir", json.dumps(str(tmp_path / "elsewhere")))
    resume(folder)
    assert folder.finished()


def test_python_cannot_continue_with_other_settings_either(folder: RunFolder) -> None:
    other = build(complete(resolve({**SETTINGS, "learning_rate": 0.3})))
    with pytest.raises(CertusError, match=r"`learning_rate` is 0\.3, but was"):
        train(other, folder)
    shutil.rmtree(folder.checkpoints)
    with pytest.raises(CertusError, match=r"`learning_rate` is 0\.3, but was"):
        train(other, folder)


def test_another_split_and_another_model_are_noticed(folder: RunFolder) -> None:
    run = build(folder.load_config())
    kept = identity(run)
    assert kept == checkpoint.read(folder.checkpoints)[1]["identity"]  # type: ignore[index]
    labels = run.labels.clone()
    labels[run.split.labelled[0]] = (labels[run.split.labelled[0]] + 1) % 10
    moved = replace(run.split, unlabelled=run.split.unlabelled.flip(0))
    for changed in (replace(run, labels=labels), replace(run, split=moved)):
        assert identity(changed) == {**kept, "split": identity(changed)["split"]}
        with pytest.raises(CertusError, match="images or labels are not those"):
            Progress.of(changed, folder, observe=False)
    run.method.state.register_buffer("another", torch.zeros(1))
    with pytest.raises(CertusError, match="is of another model"):
        Progress.of(run, folder, observe=False)


def old(folder: RunFolder) -> RunFolder:
    """As certus 0.1.0 left it."""
    unsealed(folder)
    begun = json.loads(folder.split.read_text())
    folder.split.write_text(json.dumps({name: begun[name] for name in begun if name not in ("identity", "check")}))
    tensors, meta = checkpoint.read(folder.checkpoints)  # type: ignore[misc]
    shutil.rmtree(folder.checkpoints)
    checkpoint.write(folder.checkpoints, meta.pop("step"), tensors, {k: v for k, v in meta.items() if k != "identity"})
    return folder


def test_a_run_of_the_first_version_is_opened_and_newer_settings_have_their_defaults(
    folder: RunFolder, begun: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from certus.cli.main import run

    whole = RunFolder(Path(shutil.copytree(begun, tmp_path / "whole")))
    assert not whole.is_old()
    old(folder)
    newer = ("optimiser", "pace", "warm_up", "label_smoothing", "strong", "strength", "precision")
    lines = folder.config.read_text().splitlines(keepends=True)
    folder.config.write_text("".join(line for line in lines if not line.startswith(newer)))
    assert folder.is_old()
    assert folder.load_config() == whole.load_config()
    assert run(["train", "--resume", str(folder.path)]) == 0
    assert "begun by certus 0.1.0" in capsys.readouterr().err
    resume(whole)
    a, b = (checkpoint.read(f.checkpoints)[0] for f in (folder, whole))  # type: ignore[index]
    assert same_state(a, b)


def test_newer_settings_of_an_old_run_do_not_come_from_presets(folder: RunFolder) -> None:
    text = old(folder).config.read_text()
    pictures = text.replace('data = "digits"', f'data = "{folder.path}"').replace("size = 0", "size = 8")
    folder.config.write_text("".join(x for x in pictures.splitlines(keepends=True) if not x.startswith("optimiser")))
    assert resolve({"data": str(folder.path)}).optimiser == "muon"
    assert folder.load_config().optimiser == "sgd"


@pytest.mark.parametrize("name", ["😀", b"caf\xe9".decode("utf-8", "surrogateescape"), 'a"b\\', "new\nline"])
def test_a_run_on_data_of_any_path_is_opened_again(name: str, tmp_path: Path) -> None:
    run = build(complete(resolve({**SETTINGS, "data_dir": str(tmp_path / name), "steps": 2})))
    folder = RunFolder(tmp_path / "run")
    train(run, folder)
    assert folder.load_config() == run.config
    assert certus.load(folder.path).shape == (1, 8, 8)


def test_settings_that_cannot_be_saved_are_refused_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = build(complete(resolve(SETTINGS)))
    odd = replace(run, config=replace(run.config, options={**run.config.options, "weight": float("inf")}))
    with pytest.raises(CertusError, match="`weight` is inf, which a run file cannot hold"):
        RunFolder(tmp_path / "a").create(odd)
    RunFolder(tmp_path / "other").create(build(complete(resolve({**SETTINGS, "seed": 5}))))
    written = RunFolder(tmp_path / "other").config.read_text()
    monkeypatch.setattr(Config, "text", lambda _: written)
    with pytest.raises(CertusError, match="cannot be saved: when they are read back, `seed` is 5, but was 0"):
        RunFolder(tmp_path / "b").create(run)
    assert not RunFolder(tmp_path / "a").exists()
    assert not RunFolder(tmp_path / "b").exists()
