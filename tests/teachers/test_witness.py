"""The witness: the answering network of the warm-up's end, kept, saved, loaded, and asked about certainty."""

from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from builders import same_state
from torch.testing import assert_close

import certus
from certus.certainty.metrics import predictive_entropy
from certus.config import resolve
from certus.report.runs import RunRecord
from certus.teachers.witness import witnessed
from certus.training.build import build
from certus.training.loop import fit, train
from certus.training.planning import complete
from certus.training.run_folder import RunFolder

STEPS, WARM = 8, 4


def config(**settings):
    given = {"data": "digits", "labels": 20, "method": "mean-teacher", "width": 8, "steps": STEPS, "threads": 1}
    return complete(resolve({**given, "warm_up": WARM / STEPS, "precision": "fp32"} | settings))


def test_it_is_the_network_of_the_warm_ups_end():
    run, states = build(config()), {}

    def listen(tick):
        states[tick.step] = deepcopy(run.method.answers[0].state_dict())
        assert same_state(run.method.witnesses[0], states[min(tick.step, WARM)])

    fit(run, listen)
    assert not same_state(states[WARM], states[STEPS])


@pytest.mark.parametrize("method", ["mean-teacher", "ft-ccl", "fixmatch"])
def test_it_changes_no_weight_of_the_run(method):
    with_it, without = build(config(method=method)), build(config(method=method))
    plain = replace(without.method, witnesses=(), followers=without.method.followers[:-1])
    for run in (with_it, replace(without, method=plain)):
        fit(run)
    assert same_state(with_it.method.answers[0], without.method.answers[0])


def test_every_answering_network_has_its_own():
    run = build(config(method="ft-ccl", options={"teachers": 2}))
    assert len(run.method.witnesses) == len(run.method.answers) > 1
    fit(run)
    assert not same_state(*run.method.witnesses[:2])


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_without_a_warm_up_and_without_anything_after_it_there_is_none(share):
    assert not build(config(warm_up=share)).method.witnesses


def test_the_recipe_names_it():
    assert "witness = teacher at the end of the warm-up" in repr(witnessed(build(config(warm_up=0.0)).method))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    run, folder = build(config()), RunFolder(tmp_path_factory.mktemp("run") / "run")
    train(run, folder)
    return run, folder


def test_the_saved_run_answers_with_it(trained):
    run, folder = trained
    model, images = certus.load(folder.path), run.data.test.images
    assert same_state(model.witnesses[0], run.method.witnesses[0])
    both = [model.mean_answer(nets, images) for nets in (model.nets, model.witnesses)]
    answered = model.predict(images, draws=2)
    assert_close(torch.from_numpy(answered.uncertainty["witness"]), predictive_entropy(torch.stack(both)))
    assert answered.metric == "witness"
    assert (answered.rank() == answered.rank("witness")).all()


def test_reports_rank_by_it(trained):
    run, folder = trained
    record = RunRecord(folder, run.config)
    assert record.metric == "witness"
    assert_close(
        record.answers["witness"],
        torch.from_numpy(certus.load(folder.path).predict(run.data.test.images).uncertainty["witness"]),
    )


def test_it_resumes_to_the_bit_from_the_warm_up_and_from_after_it(tmp_path):
    whole = build(config())
    train(whole, RunFolder(tmp_path / "whole"))
    for stop in (WARM - 1, WARM, WARM + 2):
        folder = RunFolder(tmp_path / f"stopped-{stop}")

        def interrupt(tick, stop=stop):
            if tick.step == stop:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            train(build(config()), folder, interrupt, save_seconds=0.0)
        resumed = build(config())
        train(resumed, folder)
        assert same_state(whole.method.state, resumed.method.state)
