"""Sweeps: which trials there are, what they measure, and that a kill at any moment changes nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from experiments.inline import Inline, Killed

from certus.data import Dataset, load
from certus.errors import CertusError, UsageError
from certus.experiments import pool, sweep_plan
from certus.experiments import sweep as sweeps
from certus.experiments.sweep import run_sweep
from certus.experiments.sweep_plan import Sweep, plan_sweep
from certus.experiments.sweep_study import JOURNAL, Study, Tried
from certus.training.build import build
from certus.training.lock import locked
from certus.training.loop import fit
from certus.training.run_folder import RunFolder

SETTINGS = {"data": "moons", "width": 4, "labelled_batch": 6, "unlabelled_batch": 200, "validation": 50}


@pytest.fixture(autouse=True)
def one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeps, "open_pool", Inline)
    monkeypatch.setattr(Inline, "kill_after", None)
    monkeypatch.setattr(Inline, "seen", 0)


BOTH = "weight=1..30:log learning_rate=0.02,0.2"


def planned(out: Path, methods: str = "pi", texts: str = BOTH, **more: Any) -> Sweep:
    given = {"trials": 4, "epochs": 2, "settings": SETTINGS, "out": out, **more}
    return plan_sweep(methods.split(","), texts.split(), **given)


def tried(sweep: Sweep, **more: Any) -> dict[str, list[Tried]]:
    studies, failures = run_sweep(sweep, 1, **more)
    assert not failures
    return {study.name: study.tried() for study in studies}


def test_methods_have_the_same_number_of_trials_of_the_settings_that_they_have(tmp_path: Path) -> None:
    order: list[str] = []
    sweep = planned(tmp_path, "supervised,pi", "weight=1..30:log learning_rate=0.02..0.2", trials=2, seeds=2)
    found = tried(sweep, on_end=lambda attempt, _: order.append(attempt.name))
    assert order == [f"{method} trial {i}" for i in range(2) for method in ("supervised", "pi")]
    assert all(set(t.values) == {"learning_rate"} for t in found["supervised"])
    assert all(set(t.values) == {"learning_rate", "weight"} for t in found["pi"])
    usual = sweep.searches[1].resolved({})
    assert found["pi"][0].values == {"learning_rate": usual.learning_rate, "weight": usual.options["weight"]}
    assert len({t.values["weight"] for t in found["pi"]}) == 2
    for t in found["pi"][1:2]:  # the naive way: a run in memory, with its test images, that sees the same errors
        for seed in (0, 1):
            run = build(sweep.searches[1].config(t.values, seed))
            fit(run)
            assert t.errors[seed] == np.mean(run.validation_errors())
        assert t.error == (t.errors[0] + t.errors[1]) / 2


def test_a_grid_has_each_point_once_and_may_be_enlarged_but_not_changed(tmp_path: Path) -> None:
    points = [{"learning_rate": rate, "weight": w} for rate in (0.02, 0.2) for w in (1.0, 5.0)]
    texts = "learning_rate=0.02,0.2 weight=1,5"
    few = tried(planned(tmp_path, texts=texts, trials=2, epochs=1))["pi"]
    first = tried(planned(tmp_path, texts=texts, trials=30, epochs=1))["pi"]
    assert first[:2] == few
    assert [t.values for t in first[2:]] == [p for p in points if p not in [t.values for t in few]]
    whole = tried(planned(tmp_path / "whole", texts=texts, trials=30, epochs=1))["pi"]
    assert [t.values for t in whole] == points
    Inline.kill_after = Inline.seen  # nothing is trained any more
    assert tried(planned(tmp_path, texts=texts, trials=50, epochs=1))["pi"] == first
    with pytest.raises(UsageError, match="already holds a sweep of pi with other set: give another `out`"):
        tried(planned(tmp_path, texts="weight=1,6", epochs=1))
    with pytest.raises(UsageError, match="with other settings, seeds"):
        tried(planned(tmp_path, texts=texts, seeds=2, epochs=2))


@pytest.mark.parametrize("events", [0, 2, 4])
def test_a_sweep_that_is_killed_at_any_moment_goes_on_to_the_same_trials(events: int, tmp_path: Path) -> None:
    whole = tried(planned(tmp_path / "whole", trials=2, epochs=3))
    events_in_all, Inline.seen = Inline.seen, 0
    Inline.kill_after = events
    with pytest.raises(Killed):
        tried(planned(tmp_path / "cut", trials=2, epochs=3))
    with (tmp_path / "cut" / JOURNAL).open("ab") as journal:
        journal.write(b'{"op_code": 8, "wor')  # the last line was half written
    (tmp_path / "cut" / f"{JOURNAL}.lock").touch()
    Inline.kill_after = None
    assert tried(planned(tmp_path / "cut", trials=2, epochs=3)) == whole
    assert Inline.seen <= events_in_all + 3  # finished trials are not trained again
    assert len(list((tmp_path / "cut" / "trials").iterdir())) == 2


def test_test_images_are_never_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Forbidden:
        def __getattr__(self, name: str) -> Any:
            raise AssertionError(f"the test images were asked for {name}")

        def __len__(self) -> int:
            raise AssertionError("the test images were counted")

    def guarded(*given: Any) -> Dataset:
        return replace(load(*given), test=Forbidden())  # type: ignore[arg-type]

    expected = tried(planned(tmp_path / "free", trials=2))
    for module in (sweeps, sweep_plan):
        monkeypatch.setattr(module, "load", guarded)
    assert tried(planned(tmp_path / "guarded", trials=2)) == expected
    folders = [RunFolder(path) for path in (tmp_path / "guarded" / "trials").iterdir()]
    assert [folder.load_result()["test_error"] for folder in folders] == [None, None]
    assert not any(folder.predictions.exists() for folder in folders)


def test_trials_that_are_behind_the_median_are_stopped(tmp_path: Path) -> None:
    texts = "learning_rate=0.2,0.1,0.3,0.15,0.25,0.05,0.00001,0.00002"
    sweep = planned(tmp_path, texts=texts, trials=8, epochs=6)
    told: list[str] = []
    found = tried(sweep, on_end=lambda _, outcome: told.append(outcome))["pi"]
    pruned = [t for t in found if t.state == "pruned"]
    assert pruned
    assert all(t.number >= 5 for t in pruned)
    reports = [t.intermediate_values for t in study_of(sweep).study.trials]
    for number, epochs in enumerate(reports):  # the naive rule
        if number < 5:
            continue
        done = [reports[i] for i in range(number) if found[i].state == "finished"]
        least = {e: min(epochs[k] for k in epochs if k <= e) for e in epochs}
        behind = [e for e in epochs if e > 1 and least[e] > np.median([d[e] for d in done])]
        assert (found[number].state == "pruned") == bool(behind)
        assert not behind or max(epochs) == behind[0]
    for t in pruned:
        assert not RunFolder(tmp_path / "trials" / f"pi-{t.number:03}-seed0").finished()
    assert sum("pruned at" in outcome for outcome in told) == len(pruned)


def test_hyperband_stops_trials_too(tmp_path: Path) -> None:
    texts = "learning_rate=0.2,0.1,0.3,0.15,0.00001,0.00002"
    found = tried(planned(tmp_path, texts=texts, trials=6, epochs=6, pruner="hyperband"))["pi"]
    assert {t.state for t in found} == {"finished", "pruned"}


def test_a_run_that_a_worker_still_saves_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "AGAIN", 0.0)
    sweep = planned(tmp_path, trials=1, epochs=1)
    (search,) = sweep.searches
    holder = locked(sweep.cell(search, 0, search.usual, 0).folder.path)
    holder.__enter__()
    tries: list[str] = []
    trained = sweeps.train_trial

    def counted(cell: Any, listen: Any, **more: Any) -> Any:
        tries.append(cell.name)
        if len(tries) == 3:
            holder.__exit__(None, None, None)
        return trained(cell, listen, **more)

    monkeypatch.setattr(sweeps, "train_trial", counted)
    assert [t.state for t in tried(sweep)["pi"]] == ["finished"]
    assert len(tries) == 3


def study_of(sweep: Sweep) -> Study:
    (study,) = sweeps.open_studies(sweep)
    return study


def test_a_loss_that_is_not_finite_counts_as_100_percent(tmp_path: Path) -> None:
    found = tried(planned(tmp_path, texts="weight_decay=0.0002,1000", trials=2, epochs=8, pruner="none"))["pi"]
    assert found[0].error is not None
    assert found[0].error < 100
    assert found[1].errors == {0: 100.0}


def test_a_failure_is_named_and_the_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = sweeps.train_trial

    def broken(cell: Any, listen: Any, **more: Any) -> Any:
        if "-000-" in cell.name:
            raise CertusError("The disk is full.")
        return trained(cell, listen, **more)

    monkeypatch.setattr(sweeps, "train_trial", broken)
    studies, failures = run_sweep(planned(tmp_path, trials=2), 1)
    assert {name: str(e) for name, e in failures.items()} == {"pi trial 0": "The disk is full."}
    assert [t.state for t in studies[0].tried()] == ["failed", "finished"]


def test_a_sweep_stops_in_time_and_goes_on_later(tmp_path: Path) -> None:
    first = tried(planned(tmp_path / "out"), minutes=1e-6)["pi"]
    assert len(first) < 4
    assert len(tried(planned(tmp_path / "out"), tensorboard=tmp_path / "board")["pi"]) == 4
    curves = {path.name for path in (tmp_path / "board").iterdir() if list(path.glob("events.*"))}
    assert len(curves) == 4 - len(first)


def test_equal_values_are_trained_once(tmp_path: Path) -> None:
    told: dict[int, str] = {}
    sweep = planned(tmp_path, texts="learning_rate=0.02,0.2 flip=off weight=5,6,7", trials=5, epochs=1)
    found = tried(sweep, on_end=lambda attempt, outcome: told.setdefault(attempt.trial.number, outcome))["pi"]
    points = [json.dumps(t.values, sort_keys=True) for t in found]
    folders = len(list((tmp_path / "trials").iterdir()))
    assert folders == len(set(points))
    for t, point in zip(found, points, strict=True):
        earlier = points.index(point)
        assert t.errors == found[earlier].errors
        assert (earlier < t.number) == told[t.number].startswith(f"as trial {earlier}")
    assert len(found) == 5


def test_a_damaged_journal_is_refused(tmp_path: Path) -> None:
    tried(planned(tmp_path, trials=1, epochs=1))
    journal = tmp_path / JOURNAL
    lines = journal.read_bytes().split(b"\n")
    journal.write_bytes(b"\n".join([lines[0], b"{", *lines[2:]]))
    with pytest.raises(CertusError, match=r"journal\.log is damaged"):
        tried(planned(tmp_path, trials=2, epochs=1))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"texts": "wieght=1,2"}, "Did you mean 'weight'"),
        ({"texts": "weight=5..1"}, "empty range"),
        ({"texts": ""}, "nothing to search"),
        ({"texts": "dropout=0.5..1.5"}, "`dropout` must be between 0 and 0.95, but is 1.5"),
        ({"texts": "weight=-5,3"}, "`weight` must be at least 0, but is -5"),
        ({"texts": "optimiser=sgd,muon momentum=0.5..0.8"}, "`momentum` would change nothing"),
        ({"texts": "heat=1,2", "methods": "pi,supervised"}, "'heat'"),
        ({"methods": "pi,pi"}, "`methods` must name each method once"),
        ({"methods": "pie"}, "There is no method 'pie'"),
        ({"trials": 0}, "`trials` must be at least 1"),
        ({"seeds": 0}, "`seeds` must be at least 1"),
        ({"pruner": "mean"}, "There is no pruner 'mean'"),
        ({"epochs": -1.0}, "`epochs` must be more than 0"),
        ({"options": {"weight": 3.0}}, "`weight` is both fixed and searched"),
        ({"options": {"heat": 3.0}}, "None of pi has an option `heat`"),
        ({"settings": {**SETTINGS, "validation": 0}}, "moons has no validation images here"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_trained(
    given: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError) as refused:
        planned(tmp_path / "out", **given)
    assert message in str(refused.value)
    assert not (tmp_path / "out").exists()
