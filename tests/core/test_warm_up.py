"""The warm-up: labels alone, off the paper's clock, at a rate that falls before targets are used."""

import pytest
import torch
from builders import plain_config
from hypothesis import given
from hypothesis import strategies as st

from certus.config import resolve
from certus.core.schedules import Clock, cosine, linear, warmed
from certus.core.terms import CrossEntropy
from certus.data.batches import Batches
from certus.errors import UsageError
from certus.methods import METHODS
from certus.training.build import build
from certus.training.loop import fit, train
from certus.training.planning import complete
from certus.training.run_folder import RunFolder

SMALL = {"data": "moons", "labels": 6, "width": 8, "labelled_batch": 6, "unlabelled_batch": 10, "threads": 1}
BOTH = [name for name in METHODS if build(plain_config(name, steps=2, labels=6, width=4)).method.sees == "both"]


@given(st.integers(1, 500), st.floats(0, 0.9))
def test_the_papers_clock_runs_from_the_end_of_the_warm_up(steps, share):
    warm = min(round(share * steps), steps - 1)
    clocks = [Clock(step, steps, warm=warm) for step in range(steps)]
    assert [clock.epoch for clock in clocks[:warm]] == [0] * warm
    alone = [Clock(step, steps - warm).epoch for step in range(steps - warm)]
    assert [clock.epoch for clock in clocks[warm:]] == alone
    assert [clock.warming for clock in clocks] == [step < warm for step in range(steps)]


@pytest.mark.parametrize("pace", [cosine, linear])
def test_the_rate_falls_restarts_and_falls_again(pace):
    rates = [warmed(pace, x / 100, 0.2) for x in range(100)]
    assert rates[0] == 1
    assert rates[:20] == sorted(rates[:20], reverse=True)
    assert rates[19] < 0.16
    assert rates[20] == pytest.approx(0.3)
    assert rates[20:] == sorted(rates[20:], reverse=True)
    assert rates[-1] < 0.01
    assert [warmed(pace, x / 10, 0.0) for x in range(10)] == [pace(x / 10) for x in range(10)]


def test_its_batches_are_labelled_and_of_the_usual_size():
    batches = Batches(torch.arange(5), torch.arange(5, 50), (4, 12), seed=0)
    seen = torch.cat([batches.warm(step) for step in range(5)])
    assert [len(batches.warm(step)) for step in range(5)] == [16] * 5
    assert seen.bincount().tolist() == [16] * 5  # none more often than another


@pytest.mark.parametrize("name", BOTH)
def test_while_it_warms_up_every_method_learns_from_labels_alone(name):
    run = build(complete(resolve({**SMALL, "method": name, "warm_up": 0.5, "steps": 6})))
    supervised = {term for term, t in run.method.terms.items() if isinstance(t, CrossEntropy)}
    for number in range(6):
        losses = run.advance(number)
        assert set(losses) == (supervised if number < 3 else set(run.method.terms))
        assert (run.step(number).batch.labels >= 0).all() == (number < 3)


def test_it_resumes_and_its_lines_are_written(tmp_path):
    config = complete(resolve({**SMALL, "method": "ft-ccl", "warm_up": 0.4, "steps": 60, "validation": 20}))
    memory, folder = build(config), build(config)
    fit(memory)
    train(folder, RunFolder(tmp_path / "run"))
    states = [run.method.students[0].state_dict() for run in (memory, folder)]
    assert all(torch.equal(a, b) for a, b in zip(states[0].values(), states[1].values(), strict=True))
    assert RunFolder(tmp_path / "run").load_metrics()[-1]["targets"]["consistency"]["kept"]["all"] > 0


def test_a_method_without_unlabelled_images_refuses_it():
    with pytest.raises(UsageError, match="`warm_up` is for methods that also learn from unlabelled images"):
        build(complete(resolve({**SMALL, "method": "supervised", "warm_up": 0.2, "steps": 5})))
