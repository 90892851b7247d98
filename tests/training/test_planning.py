"""How long a run is: steps from minutes, and on how many threads."""

from __future__ import annotations

import pytest

from certus.config import Config, resolve
from certus.errors import UsageError
from certus.training import planning
from certus.training.planning import check_length, complete, seconds_per_step

SMALL = {"data": "moons", "labels": 6, "width": 4}


def slow_threads(config: Config) -> float:
    """On a busy machine: two threads wait for each other."""
    return 0.5 if config.threads > 1 else 0.1


def quick_threads(config: Config) -> float:
    return 0.1 / config.threads


@pytest.mark.parametrize(("timed", "threads", "steps"), [(slow_threads, 1, 600), (quick_threads, 2, 1200)])
def test_minutes_take_the_quicker_number_of_threads(
    monkeypatch: pytest.MonkeyPatch, timed: object, threads: int, steps: int
) -> None:
    monkeypatch.setattr(planning, "seconds_per_step", timed)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    config = complete(resolve(SMALL), minutes=1)
    assert (config.threads, config.steps) == (threads, steps)


def test_threads_that_were_given_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "seconds_per_step", slow_threads)
    config = complete(resolve({**SMALL, "threads": 2}), minutes=1)
    assert (config.threads, config.steps) == (2, 120)


def test_a_run_has_at_least_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "seconds_per_step", lambda _: 100.0)
    assert complete(resolve(SMALL), minutes=0.01).steps == 1


def test_timing_takes_a_few_steps_and_leaves_no_trace() -> None:
    config = complete(resolve({**SMALL, "threads": 1, "steps": 5, "method": "mean-teacher", "warm_up": 0.4}))
    assert 0 < seconds_per_step(config) < 10


@pytest.mark.parametrize("given", [(1, 2, None), (None, 1, 1), (0, None, None), (None, None, float("nan"))])
def test_a_length_that_makes_no_sense_is_refused(given: tuple[float | None, ...]) -> None:
    with pytest.raises(UsageError):
        check_length(*given)
    check_length(3, None, None)
