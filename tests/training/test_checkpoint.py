"""Checkpoints: what is read is what was written, a damaged one is refused, a failed write loses nothing."""

import errno
import os
import re
from pathlib import Path

import pytest
import torch
from torch import nn

from certus.errors import CertusError
from certus.training import checkpoint
from certus.training.checkpoint import read, write
from certus.writing import write_new

TENSORS = {
    "single": torch.tensor([[1.5, -0.0], [float("inf"), 1e-45]]),
    "double": torch.tensor(0.1, dtype=torch.float64),
    "whole": torch.tensor([2**62, -1]),
    "mask": torch.tensor([True, False]),
    "empty": torch.zeros(0, 3),
    "transposed": torch.arange(6.0).reshape(2, 3).T,
    "channels last": torch.arange(24.0).reshape(1, 2, 3, 4).to(memory_format=torch.channels_last),
}
META = {"seconds": 0.1, "sums": {"supervised": 1 / 3, "consistency": 0.0}, "nothing": None}


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_what_is_read_is_what_was_written(tmp_path):
    write(tmp_path, 440, TENSORS, META)
    tensors, meta = read(tmp_path)
    assert tensors.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert tensors[name].dtype == tensor.dtype
        assert torch.equal(tensors[name], tensor)
    assert {key: meta[key] for key in META} == META
    assert meta["step"] == 440


def test_parameters_are_written_without_their_graph(tmp_path):
    net = nn.Linear(2, 2)
    write(tmp_path, 1, dict(net.named_parameters()), {})
    tensors, _ = read(tmp_path)
    assert torch.equal(tensors["weight"], net.weight)
    assert not tensors["weight"].requires_grad


def test_where_nothing_was_written_there_is_no_checkpoint(tmp_path):
    assert read(tmp_path / "none") is None
    assert read(tmp_path) is None


def test_only_the_newest_is_kept(tmp_path):
    for step in (5, 9, 10, 100):
        write(tmp_path, step, {"step": torch.tensor(step)}, {})
        assert names(tmp_path) == [f"step-{step:08d}"]
        assert read(tmp_path)[0]["step"] == step


def test_of_several_the_newest_is_read(tmp_path):
    for step in (9, 10, 100):
        write(tmp_path / f"{step}", step, {"step": torch.tensor(step)}, {})
        (tmp_path / f"{step}" / f"step-{step:08d}").rename(tmp_path / f"step-{step:08d}")
    assert read(tmp_path)[1]["step"] == 100


def test_a_step_that_is_already_there_is_not_written_again(tmp_path, monkeypatch):
    write(tmp_path, 3, TENSORS, META)
    monkeypatch.setattr(checkpoint, "write_new", None)
    write(tmp_path, 3, TENSORS, META)
    assert read(tmp_path)[1]["step"] == 3


@pytest.mark.parametrize("name", ["state.safetensors", "state.json"])
def test_a_truncated_file_is_refused_at_any_length(tmp_path, name):
    write(tmp_path, 3, {"x": torch.arange(4.0)}, {})
    path = tmp_path / "step-00000003" / name
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(CertusError, match="step-00000003"):
            read(tmp_path)
    path.write_bytes(whole)
    assert read(tmp_path)[1]["step"] == 3


def test_tensors_with_any_byte_altered_are_refused(tmp_path):
    write(tmp_path, 3, {"x": torch.arange(4.0)}, {})
    path = tmp_path / "step-00000003" / "state.safetensors"
    whole = path.read_bytes()
    for i in range(len(whole)):
        path.write_bytes(whole[:i] + bytes([whole[i] ^ 1]) + whole[i + 1 :])
        with pytest.raises(CertusError, match="damaged"):
            read(tmp_path)


@pytest.mark.parametrize("name", ["state.safetensors", "state.json"])
def test_a_missing_file_is_refused(tmp_path, name):
    write(tmp_path, 3, TENSORS, META)
    (tmp_path / "step-00000003" / name).unlink()
    with pytest.raises(CertusError, match="cannot be read"):
        read(tmp_path)


def full_disk(*args, **kwargs):  # noqa: ARG001 (stands in for any call)
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def full_at_the_second_file(path, data):
    if path.name == "state.json":
        full_disk()
    write_new(path, data)


@pytest.mark.parametrize(
    ("where", "name", "fails"),
    [
        (checkpoint, "write_new", full_disk),
        (checkpoint, "write_new", full_at_the_second_file),
        (os, "fsync", full_disk),
        (Path, "rename", full_disk),
    ],
    ids=["first file", "second file", "flush to disk", "rename"],
)
def test_a_failed_write_keeps_the_previous_checkpoint_and_leaves_no_litter(tmp_path, monkeypatch, where, name, fails):
    write(tmp_path, 3, TENSORS, META)
    with monkeypatch.context() as patch:
        patch.setattr(where, name, fails)
        with pytest.raises(CertusError, match="No space left on device"):
            write(tmp_path, 4, TENSORS, META)
    assert names(tmp_path) == ["step-00000003"]
    assert read(tmp_path)[1]["step"] == 3
    write(tmp_path, 4, TENSORS, META)
    assert names(tmp_path) == ["step-00000004"]


def test_an_old_one_that_a_kill_left_is_removed_by_the_next_save_even_of_the_same_step(tmp_path):
    write(tmp_path, 4, TENSORS, META)
    write(tmp_path / "old", 3, TENSORS, META)
    (tmp_path / "old" / "step-00000003").rename(tmp_path / "step-00000003")
    write(tmp_path, 4, TENSORS, META)
    assert names(tmp_path) == ["step-00000004"]


def test_a_run_folder_that_is_gone_is_not_made_anew(tmp_path):
    with pytest.raises(CertusError, match="No such file or directory"):
        write(tmp_path / "gone" / "checkpoints", 1, TENSORS, META)
    assert not (tmp_path / "gone").exists()


def test_a_failed_write_says_how_to_go_on(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "write_new", full_disk)
    with pytest.raises(CertusError, match=rf"`resume` {re.escape(str(tmp_path))}\.$"):
        write(tmp_path / "checkpoints", 4, TENSORS, META)


def killed_at_the_second_file(path, data):
    if path.name == "state.json":
        raise KeyboardInterrupt
    write_new(path, data)


@pytest.mark.parametrize("previous", [None, 3])
def test_a_write_that_was_killed_is_never_read_and_the_next_one_sweeps_it_up(tmp_path, monkeypatch, previous):
    if previous:
        write(tmp_path, previous, TENSORS, META)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "write_new", killed_at_the_second_file)
        with pytest.raises(KeyboardInterrupt):
            write(tmp_path, 4, TENSORS, META)
    found = read(tmp_path)
    assert (found and found[1]["step"]) == previous
    write(tmp_path, 5, TENSORS, META)
    assert names(tmp_path) == ["step-00000005"]


@pytest.mark.parametrize("altered", ["[]", "null", '{"step": 7}', ""])
def test_an_altered_description_is_refused(tmp_path: Path, altered: str) -> None:
    write(tmp_path, 1, {"a": torch.ones(2)}, {})
    (tmp_path / "step-00000001" / "state.json").write_text(altered)
    with pytest.raises(CertusError, match="damaged"):
        read(tmp_path)


def test_tied_tensors_are_saved_each_by_itself(tmp_path: Path) -> None:
    w = torch.ones(3)
    write(tmp_path, 1, {"a": w, "b": w}, {})
    tensors, _ = read(tmp_path)
    assert torch.equal(tensors["a"], tensors["b"])


def test_an_error_names_a_folder_that_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CertusError, match=r"Cannot write a checkpoint to .*file"):
        write(tmp_path / "file" / "checkpoints", 1, {}, {})
