"""The one loop: in memory or in a folder, it takes the same steps."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from certus.config import resolve
from certus.training.build import build
from certus.training.loop import Tick, fit, train
from certus.training.planning import complete
from certus.training.run import Run
from certus.training.run_folder import RunFolder

SMALL = {"data": "moons", "labels": 6, "validation": 10, "width": 4, "threads": 1, "steps": 7}


def built(**given: object) -> Run:
    return build(complete(resolve({**SMALL, **given})))


@pytest.mark.parametrize("method", ["supervised", "ft-ccl", "mean-teacher-fastswa"])
def test_in_memory_and_in_a_folder_the_weights_are_the_same(method: str, tmp_path: Path) -> None:
    memory, folder = built(method=method), built(method=method)
    heard: list[list[Tick]] = [[], []]
    fit(memory, heard[0].append)
    train(folder, RunFolder(tmp_path / "run"), heard[1].append)
    assert [tick.step for tick in heard[0]] == [tick.step for tick in heard[1]] == list(range(1, 8))
    assert [tick.losses for tick in heard[0]] == [tick.losses for tick in heard[1]]
    learnt = [p for run in (memory, folder) for net in run.method.students for p in net.parameters()]
    half = len(learnt) // 2
    assert all(torch.equal(a, b) for a, b in zip(learnt[:half], learnt[half:], strict=True))


def test_in_memory_nothing_is_written_and_the_callers_random_numbers_are_untouched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = built()
    before = torch.random.get_rng_state()
    fit(run)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert not list(tmp_path.iterdir())


def test_the_number_of_threads_is_that_of_the_config_while_training() -> None:
    run = built(threads=2)
    seen: list[int] = []
    before = torch.get_num_threads()
    fit(run, lambda _: seen.append(torch.get_num_threads()))
    assert set(seen) == {2}
    assert torch.get_num_threads() == before


def test_a_run_that_has_all_its_steps_is_concluded_and_not_trained_again(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    first = train(built(), folder)
    folder.result.unlink()
    heard: list[Tick] = []
    assert train(built(), folder, heard.append)["test_error"] == first["test_error"]
    assert not heard
