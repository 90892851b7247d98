"""How long a run is: steps from minutes, on how many threads, with which batches and warm-up."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from certus.config import Config, resolve
from certus.config.engine import FEW, PRICE, WIDER, WarmUp, fine_warm_up_for, usual_steps, warm_up_for
from certus.data import Dataset, Part, load
from certus.errors import UsageError
from certus.training import planning
from certus.training.planning import Cost, check_length, complete, complete_seeing, cost, minutes_of, timed_within

SMALL = {"data": "moons", "labels": 6, "width": 4}
DIGITS = {"data": "digits", "labels": 20, "width": 8, "threads": 1}
USUAL = {**DIGITS, "labelled_batch": 64, "unlabelled_batch": 320, "warm_up": -1.0}


def costs(seconds: float) -> object:
    """A step of 384 images takes so long; of fewer, less; of a warm-up, half."""

    def costs_of(config: Config, *_: object) -> Cost:
        images = config.labelled_batch + (0 if config.method == "supervised" else config.unlabelled_batch)
        sees = "labelled" if config.method == "supervised" else "both"
        return Cost(seconds * images / 384 / 2, seconds * images / 384, sees)

    return costs_of


def slow_threads(config: Config, *_: object) -> Cost:
    """On a busy machine: two threads wait for each other."""
    return Cost(0.5, 0.5) if config.threads > 1 else Cost(0.1, 0.1)


def quick_threads(config: Config, *_: object) -> Cost:
    return Cost(0.1 / config.threads, 0.1 / config.threads)


@pytest.mark.parametrize(("timed", "threads", "steps"), [(slow_threads, 1, 600), (quick_threads, 2, 1200)])
def test_minutes_take_the_quicker_number_of_threads(
    monkeypatch: pytest.MonkeyPatch, timed: object, threads: int, steps: int
) -> None:
    monkeypatch.setattr(planning, "cost", timed)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    config = complete(resolve(SMALL), minutes=1)
    assert config.threads == threads
    assert 0.99 * steps <= config.steps <= steps  # the time that planning took is part of the minutes


def test_threads_that_were_given_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "cost", slow_threads)
    config = complete(resolve({**SMALL, "threads": 2}), minutes=1)
    assert config.threads == 2
    assert 118 <= config.steps <= 120


def test_a_run_has_at_least_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "cost", lambda *_: Cost(100.0, 100.0))
    assert complete(resolve(SMALL), minutes=0.01).steps == 1


@pytest.mark.parametrize("images", [100, 5_000, 200_000])
@pytest.mark.parametrize("warm", [-1.0, 0.0, 0.25])
def test_the_fewest_steps_that_see_so_many_unlabelled_images(images: int, warm: float) -> None:
    config = complete_seeing(resolve({**USUAL, "method": "mean-teacher", "warm_up": warm}), images)
    assert warm == -1 or config.warm_up == warm

    share = planning.warm_share(replace(config, warm_up=warm), load("digits"))

    def seen(steps: int) -> float:
        return steps * (1 - share(steps)) * 320

    assert seen(config.steps - 1) < images <= seen(config.steps)


def test_timing_is_not_part_of_the_minutes_but_what_a_method_builds_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "cost", lambda *_: Cost(0.1, 0.1))
    taken, clock = iter((30.0,)), itertools.count(step=5)  # seconds of a graph, and a clock that leaps
    monkeypatch.setattr(planning, "seconds", lambda *_: next(taken))
    monkeypatch.setattr(planning.time, "process_time", lambda: next(clock))
    given = {"data": "digits", "labels": 20, "width": 8, "threads": 1, "warm_up": 0.0}
    assert timed_within(resolve({**given, "method": "mean-teacher"}), 1).steps == 600
    config = resolve({**given, "method": "label-propagation", "labelled_batch": 1, "unlabelled_batch": 1})
    assert timed_within(config, 1).steps == 300  # 600 steps are less than a pass over the unlabelled images


def test_a_run_s_minutes_follow_from_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "cost", lambda *_: Cost(warm=1.0, full=2.0))
    config = complete(resolve({**DIGITS, "method": "mean-teacher", "warm_up": 0.25, "steps": 120}))
    assert minutes_of(config) == pytest.approx((30 * 1.0 + 90 * 2.0) / 60)


@pytest.mark.parametrize("method", ["mean-teacher", "ft-ccl", "fixmatch"])
@pytest.mark.parametrize("minutes", [1, 3, 10, 180])
def test_warm_up_and_batches_follow_the_minutes(monkeypatch: pytest.MonkeyPatch, method: str, minutes: int) -> None:
    monkeypatch.setattr(planning, "cost", costs(0.4))
    config = complete(resolve({**USUAL, "method": method}), minutes=minutes)
    batch = config.labelled_batch + config.unlabelled_batch
    assert config.warm_up == planning.warm_up(config, load("digits")).share(config.steps, batch)
    spent = config.steps * (config.warm_up * 0.2 + (1 - config.warm_up) * 0.4) * batch / 384
    assert 0.98 * 60 * minutes <= spent <= 60 * minutes
    assert batch == (192 if minutes < 10 else 384)


def test_a_long_run_has_a_wider_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "cost", costs(0.4))
    given = {**USUAL, "method": "mean-teacher", "width": 0}
    short, long = (complete(resolve(given), minutes=m) for m in (3, 20))
    assert (short.width, long.width) == (128, WIDER)
    images = long.labelled_batch + long.unlabelled_batch
    spent = PRICE * long.steps * (long.warm_up * 0.2 + (1 - long.warm_up) * 0.4) * images / 384
    assert 0.98 * 1200 <= spent <= 1200
    assert complete(resolve({**given, "width": 64}), minutes=20).width == 64
    assert complete(resolve({**given, "network": "cnn13-small"}), minutes=20).width == 16
    assert complete(resolve({**DIGITS, "method": "supervised", "width": 0}), minutes=20).width == 128


def test_batches_that_were_given_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "cost", costs(0.4))
    config = complete(resolve({**USUAL, "unlabelled_batch": 300}), minutes=0.2)
    assert config.steps < FEW
    assert (config.labelled_batch, config.unlabelled_batch) == (64, 300)


def test_supervised_learning_has_no_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "cost", costs(0.4))
    config = complete(
        resolve({**DIGITS, "method": "supervised", "labelled_batch": 250, "unlabelled_batch": 320}), minutes=1
    )
    assert config.warm_up == 0
    assert config.labelled_batch == 125
    longer = resolve({**DIGITS, "method": "supervised", "labelled_batch": 250, "unlabelled_batch": 320})
    config = complete(longer, minutes=10)
    assert config.labelled_batch == 250
    assert 0.98 * 600 <= config.steps * 0.4 * 250 / 384 <= 600


@given(st.integers(1, 100_000), st.integers(1, 1000), st.integers(0, 50_000), st.floats(0, 1))
def test_a_warm_up_is_a_share(steps: int, batch: int, labels: int, difficulty: float) -> None:
    for need, more in (
        (warm_up_for(labels, difficulty), warm_up_for(labels + 100, min(1, difficulty + 0.1))),
        (fine_warm_up_for(labels), fine_warm_up_for(labels + 100)),
    ):
        share = need.share(steps, batch)
        assert 0 < share <= 0.6 or share == 1
        assert (share == 1) == (need.required > 0.7 * batch * steps)
        assert need.share(2 * steps, batch) <= share <= more.share(steps, batch)


def test_a_run_too_short_for_its_pictures_learns_like_supervised_learning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random labels are as difficult as can be, and those that a bright half tells are easy."""
    monkeypatch.setattr(planning, "cost", costs(0.4))
    images = torch.randint(0, 256, (400, 3, 32, 32), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    labels = torch.randint(0, 2, (400,), generator=torch.Generator().manual_seed(1))
    left = (torch.arange(32) < 16) == (labels[:, None] == 0)
    bright = (images.float() * (0.2 + 0.8 * left[:, None, None, :])).to(torch.uint8)
    config = resolve({**USUAL, "method": "mean-teacher", "data": "cifar10", "labels": 100, "validation": 50})
    hard, easy = (
        planning.complete_on(
            Dataset("halves", ("left", "right"), Part(x, labels), Part(x[:0], labels[:0])), config, minutes=1
        )
        for x in (images, bright)
    )
    assert hard.warm_up == 1
    assert hard.labelled_batch + hard.unlabelled_batch == 125  # the batch of supervised learning
    assert 0.98 * 60 <= hard.steps * 0.2 * 125 / 384 <= 60
    assert easy.warm_up < 1
    assert (easy.labelled_batch, easy.unlabelled_batch) == (64, 128)


@given(st.floats(0.001, 10), st.floats(0.001, 10), st.floats(0.1, 1000), st.integers(0, 80_000))
def test_as_many_steps_as_fit(warm: float, full: float, seconds: float, required: int) -> None:
    def share(steps: int) -> float:
        return WarmUp(required, 1000).share(steps, 384)

    def time(steps: int) -> float:
        return steps * (share(steps) * warm + (1 - share(steps)) * full)

    steps = Cost(warm, full).steps(seconds, share)
    assert steps == 1 or time(steps) <= seconds
    if warm <= full:  # otherwise the time is not monotonous
        assert time(steps + 1) > seconds * (1 - 1e-9) or time(1) > seconds


def test_a_length_that_was_not_asked_for() -> None:
    config = complete(resolve({**DIGITS, "warm_up": -1.0}))
    assert config.steps == usual_steps(config)
    batch = config.labelled_batch + config.unlabelled_batch
    assert config.warm_up == planning.warm_up(config, load("digits")).share(config.steps, batch)


def test_timing_takes_a_few_steps_and_leaves_no_trace() -> None:
    given = {**DIGITS, "labelled_batch": 4, "unlabelled_batch": 8, "steps": 5, "method": "mean-teacher"}
    found = cost(complete(resolve(given)), load("digits"))
    assert 0 < found.warm < 10
    assert 0 < found.full < 10


@pytest.mark.parametrize("given", [(1, 2, None), (None, 1, 1), (0, None, None), (None, None, float("nan"))])
def test_a_length_that_makes_no_sense_is_refused(given: tuple[float | None, ...]) -> None:
    with pytest.raises(UsageError):
        check_length(*given)
    check_length(3, None, None)
