"""What a sweep has found, from trials that were made up."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.image import imread

from certus.config import Config
from certus.experiments.sweep import open_studies
from certus.experiments.sweep_plan import Sweep, plan_sweep
from certus.experiments.sweep_results import Found, ranked, unequal, write_sweep
from certus.experiments.sweep_study import Study, Tried

SETTINGS = {"data": "moons", "width": 4, "labelled_batch": 6, "unlabelled_batch": 200, "validation": 50, "steps": 4}


def made_up(out: Path, methods: str = "pi", trials: int = 12, seeds: int = 2) -> tuple[Sweep, list[Study]]:
    """The error is that of a bowl in log(weight); the ramp does nothing; every fourth trial was pruned or failed."""
    sweep = plan_sweep(
        methods.split(","), ["weight=1..100:log", "ramp=0,20", "pace=linear"], trials, seeds, SETTINGS, out=out
    )
    out.mkdir(exist_ok=True)
    studies = open_studies(sweep)
    for study in studies:
        for i in range(trials):
            trial = study.ask({"weight": 10.0, "ramp": 0.0, "pace": "linear"})
            values = {axis.name: axis.suggest(trial) for axis in study.space.axes}
            if i % 4 == 3:
                trial.report(50.0, 1)
                (study.prune if i % 8 == 3 else study.fail)(trial)
            else:
                error = abs(values["weight"] - 90.0)
                study.finish(trial, {seed: error + seed for seed in sweep.seeds})
    return sweep, studies


def test_the_best_settings_are_a_run_file_and_the_table_has_every_trial(tmp_path: Path) -> None:
    sweep, studies = made_up(tmp_path)
    (found,) = write_sweep(sweep, studies, "certus sweep …")
    assert found.counts == "12 trials: 9 finished, 2 pruned, 1 failed"
    assert found.best
    finished = [t for t in found.tried if t.state == "finished"]
    assert found.best == min(finished, key=lambda t: t.error or 0)
    assert found.run_file == tmp_path / "best-pi.toml"
    given = Config.read(found.run_file)
    assert given["options"]["weight"] == found.best.values["weight"]
    assert (given["pace"], given["steps"], given["seed"], given["method"]) == ("linear", 4, 0, "pi")

    table = found.table()
    assert table.heads == ("trial", "weight", "ramp", "pace", "validation error (%)", "difference to trial 0")
    assert [row[0] for row in table.rows] == [str(t.number) for t in ranked(found.tried)]
    first = next(row for row in table.rows if row[0] == "0")
    assert first[-2:] == ("80.50 ± 0.71", "")
    assert len(found.table(3).rows) == 3
    assert found.table(3).caption.endswith("6 finished ones are not shown")
    text = (tmp_path / "results.md").read_text()
    assert text.startswith("`certus sweep …`\n\n## pi\n\n12 trials")
    assert imread(tmp_path / "sweep.png").shape[2] == 4

    assert set(found.importance) == {"weight", "ramp"}  # pace has one value
    assert found.importance["weight"] > 0.6
    assert sum(found.importance.values()) == pytest.approx(1)


def with_best(found: Found, **values: object) -> Found:
    best = Tried(0, {**found.tried[0].values, **values}, "finished", {0: 1.0})
    return Found(found.search, found.tried, {}, best, None)


def test_a_best_value_at_the_edge_is_warned_of_where_there_is_more(tmp_path: Path) -> None:
    (found,) = write_sweep(*made_up(tmp_path, trials=2))
    (high,) = with_best(found, weight=97.0, ramp=0.0).edges()  # no ramp is below 0
    assert high.startswith("pi: the best weight, 97, is at the high end of weight=1.0..100.0:log.")
    (low,) = with_best(found, weight=1.0, ramp=0.0).edges()
    assert "low end" in low
    (ramp,) = with_best(found, weight=10.0, ramp=20.0).edges()
    assert "the best ramp, 20, is at the high end of ramp=0.0,20.0" in ramp
    assert with_best(found, weight=10.0, ramp=0.0).edges() == []


def test_different_numbers_of_trials_are_named(tmp_path: Path) -> None:
    sweep, studies = made_up(tmp_path, "pi,mean-teacher", trials=2)
    found = write_sweep(sweep, studies)
    assert unequal(found) == ""
    more = Found(found[0].search, [*found[0].tried, found[0].tried[0]], {}, found[0].best, None)
    assert unequal([more, found[1]]).startswith("The methods have had different numbers of trials (pi 3, mean-t")


def test_a_sweep_without_a_finished_trial_has_a_page_and_no_picture(tmp_path: Path) -> None:
    sweep, _ = made_up(tmp_path / "other", trials=1)
    tmp_path.joinpath("out").mkdir()
    empty = Sweep(sweep.searches, 1, sweep.seeds, sweep.pruner, tmp_path / "out")
    (found,) = write_sweep(empty, open_studies(empty))
    assert (found.best, found.run_file, found.counts) == (None, None, "0 trials")
    assert sorted(path.name for path in empty.out.iterdir()) == ["journal.log", "results.json", "results.md"]
