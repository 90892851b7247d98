"""The paper's numbers at every epoch, and the clock that scales them to a run of any length."""

import math
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from certus.core.schedules import Clock, Constant, Drop, Heat, Keep, RampUp, cosine, k, p_max, ramp_up, v_max

EPOCHS = range(1, 301)


def clock_at(epoch, batch=512):
    return Clock(epoch - 1, 300, batch)


@pytest.mark.parametrize("per_epoch", [1, 2, 7, 117, 1000])
def test_in_a_run_of_300_epochs_the_clock_shows_the_epoch_counted_from_1(per_epoch):
    shown = [Clock(step, 300 * per_epoch).epoch for step in range(300 * per_epoch)]
    assert shown == [epoch for epoch in EPOCHS for _ in range(per_epoch)]


@given(st.integers(1, 10**12).flatmap(lambda steps: st.tuples(st.integers(0, steps - 1), st.just(steps))))
def test_the_clock_is_exact(run):
    step, steps = run
    assert Clock(step, steps).epoch == math.ceil(300 * Fraction(step + 1, steps))


@pytest.mark.parametrize("steps", [1, 2, 3, 100, 299, 300, 301, 1000, 4321])
def test_a_run_of_any_length_ends_at_300_and_never_goes_back(steps):
    shown = [Clock(step, steps).epoch for step in range(steps)]
    assert shown[0] == max(1, math.ceil(300 / steps))
    assert shown[-1] == 300
    assert all(a <= b for a, b in pairwise(shown))
    if steps >= 300:
        assert set(shown) == set(EPOCHS)


@pytest.mark.parametrize("epochs", [1, 210, 780, 1200])
def test_a_method_with_another_published_length_has_its_own_clock(epochs):
    shown = [Clock(step, 2 * epochs, epochs=epochs).epoch for step in range(2 * epochs)]
    assert shown == [e for e in range(1, epochs + 1) for _ in range(2)]


def test_the_last_phase_of_a_run_of_any_length_has_every_target_and_the_lowest_temperature():
    """Liu & Tan 2021: P_max = 0 beyond E = 210, V_max = max(4 − e/80, 1), which is 1 from 240 on."""
    clocks = [Clock(step, 1000) for step in range(1000)]
    assert {Drop()(c) for c in clocks if c.epoch > 210} == {0.0}
    assert {Heat()(c) for c in clocks if c.epoch >= 240} == {1.0}
    assert sum(c.epoch > 210 for c in clocks) == pytest.approx(300, abs=4)  # three tenths of the run


def test_k_is_8e_at_every_epoch():
    for e in EPOCHS:
        assert Keep()(clock_at(e)) == k(e) == 8 * e


@pytest.mark.parametrize("batch", [64, 100, 256, 1024])
def test_k_scales_with_the_batch(batch):
    for e in EPOCHS:
        assert Keep()(clock_at(e, batch)) == pytest.approx(8 * e * batch / 512)
        assert Keep(beta=4.0)(clock_at(e, batch)) == pytest.approx(4 * e * batch / 512)


def test_p_max_falls_by_the_paper_at_every_epoch():
    for e in EPOCHS:
        expected = 1 - 0.4 * e / 210 if e <= 210 else 0
        assert Drop()(clock_at(e)) == pytest.approx(expected, abs=1e-12)
    assert p_max(210) == pytest.approx(0.6)


@pytest.mark.parametrize("e", [211, 300, 1e6])
def test_p_max_is_0_beyond_epoch_210_as_the_paper_prints(e):
    assert p_max(e) == 0


@pytest.mark.parametrize(("rho", "until"), [(0.4, 100), (1.0, 210), (0.0, 50)])
def test_p_max_of_other_settings(rho, until):
    for e in EPOCHS:
        expected = 1 - rho * e / until if e <= until else 0
        assert Drop(rho, until)(clock_at(e)) == pytest.approx(expected, abs=1e-12)


def test_v_max_is_the_papers_at_every_epoch():
    for e in EPOCHS:
        assert Heat()(clock_at(e)) == pytest.approx(max(4 - e / 80, 1), abs=1e-12)


def test_v_max_never_falls_below_1():
    assert v_max(240) == v_max(241) == v_max(1e6) == 1
    assert Heat(base=2.0, per=40.0)(clock_at(20)) == pytest.approx(1.5)
    assert Heat(base=2.0, per=40.0)(clock_at(41)) == 1


def test_lambda_ramps_up_as_in_the_paper_at_every_epoch():
    for e in EPOCHS:
        expected = math.exp(-5 * (1 - min(e / 80, 1)) ** 2)
        assert RampUp(1.0)(clock_at(e)) == pytest.approx(expected, abs=1e-12)
        assert RampUp(7.5)(clock_at(e)) == pytest.approx(7.5 * expected, abs=1e-12)
    assert ramp_up(80) == ramp_up(81) == 1


@pytest.mark.parametrize("over", [1, 30, 300])
def test_a_ramp_over_other_epochs_reaches_its_peak_then(over):
    for e in EPOCHS:
        expected = 3 * math.exp(-5 * (1 - min(e / over, 1)) ** 2)
        assert RampUp(3.0, over)(clock_at(e)) == pytest.approx(expected, abs=1e-12)


def test_a_ramp_over_no_epochs_is_at_its_peak_from_the_start():
    assert RampUp(3.0, over=0)(clock_at(1)) == 3


@given(st.floats(-1e6, 1e6), st.integers(1, 300))
def test_constant_is_constant(value, e):
    assert Constant(value)(clock_at(e)) == value


@given(st.floats(0, 1), st.floats(0, 1))
def test_cosine_falls_from_1_to_0(x, y):
    assert cosine(x) == pytest.approx(math.cos(math.pi * x / 2) ** 2, abs=1e-12)  # the half-angle form
    assert cosine(min(x, y)) >= cosine(max(x, y))


def test_cosine_at_start_middle_and_end():
    assert cosine(0) == 1
    assert cosine(0.5) == pytest.approx(0.5)
    assert cosine(1) == pytest.approx(0)
