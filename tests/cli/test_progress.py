"""The estimate of how long several runs still take."""

from __future__ import annotations

import pytest

from certus.cli.progress import Workload, duration


def test_without_any_measured_step_there_is_no_estimate() -> None:
    work = Workload({"a": ("x", 10)}, workers=2)
    assert work.left() is None
    work.seen("a", 1, now=0.0)  # the time of the first step is unknown
    assert work.left() is None
    assert duration(work.left()) == "-:--"


def test_each_kind_has_its_own_pace_and_workers_share_what_is_left() -> None:
    work = Workload({"a": ("quick", 100), "b": ("slow", 100), "c": ("slow", 100), "d": ("quick", 100)}, workers=2)
    work.seen("a", 10, now=0.0)
    work.seen("a", 30, now=2.0)  # 0.1 s a step
    work.seen("b", 0, now=1.0)
    work.seen("b", 20, now=11.0)  # 0.5 s a step
    assert work.left_of("a") == pytest.approx(0.1 * 70)
    assert work.left_of("c") == pytest.approx(0.5 * 100)
    assert work.left() == pytest.approx((7 + 40 + 50 + 10) / 2)


def test_a_kind_without_measured_steps_counts_as_the_mean_of_the_others() -> None:
    work = Workload({"a": ("x", 10), "b": ("y", 10)}, workers=1)
    work.finished("a", seconds=20.0)
    assert work.left() == pytest.approx(20.0)


def test_the_estimate_is_at_least_the_longest_run() -> None:
    work = Workload({"a": ("x", 100), "b": ("x", 100)}, workers=2)
    work.finished("a", seconds=100.0)
    assert work.left() == pytest.approx(100.0)


def test_a_failed_run_leaves_no_work_and_is_not_measured() -> None:
    work = Workload({"a": ("x", 100), "b": ("x", 100)}, workers=1)
    work.finished("b", seconds=None)
    assert work.left() is None
    work.finished("a", seconds=50.0)
    assert work.left() == 0


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0:00"), (59.6, "1:00"), (61, "1:01"), (3725, "1:02:05")])
def test_a_duration_as_people_read_it(seconds: float, text: str) -> None:
    assert duration(seconds) == text
