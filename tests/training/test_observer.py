"""What is recorded while training, against naive counts; and that nobody's weights notice it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from certus.config import resolve
from certus.core.schedules import Clock
from certus.core.target import Target
from certus.core.terms import Consistency
from certus.methods import METHODS
from certus.training.build import build
from certus.training.loop import Progress, run_observer, train
from certus.training.observer import BINS, QUANTILES, Stopwatch, batch_sums, bin_of, quantiles, summarised
from certus.training.planning import complete
from certus.training.run import Run
from certus.training.run_folder import RunFolder

SMALL = {"data": "moons", "labels": 6, "validation": 8, "width": 8, "labelled_batch": 6, "unlabelled_batch": 50}
VARYING = ("seconds", "time", "images_per_second")


def small(method: str, steps: int = 30, **settings: Any) -> Any:
    return complete(resolve({**SMALL, "method": method, "steps": steps, "threads": 1, **settings}))


@given(st.lists(st.floats(1e-9, 5.0), min_size=1, max_size=60))
def test_quantiles_are_those_of_the_values_to_within_the_width_of_a_bin(values: list[float]) -> None:
    counts = torch.bincount(bin_of(torch.tensor(values, dtype=torch.float64)), minlength=BINS).tolist()
    expected = np.quantile(values, QUANTILES, method="inverted_cdf")
    assert quantiles(counts) == pytest.approx(expected.tolist(), rel=0.006)


def test_no_uncertainty_and_less_than_none_count_as_0_and_no_image_has_no_quantile() -> None:
    counts = torch.bincount(bin_of(torch.tensor([0.0, -1e-8, 1e-12])), minlength=BINS).tolist()
    assert quantiles(counts) == [0.0] * 5
    assert quantiles([0.0] * BINS) is None
    assert int(bin_of(torch.tensor([99.0]))[0]) == BINS - 1


def test_the_sums_of_a_batch_are_the_naive_counts() -> None:
    random = torch.Generator().manual_seed(3)
    b, c = 40, 4
    logits = torch.randn(b, c, generator=random)
    uncertainty = torch.rand(b, generator=random)
    labels = torch.where(torch.arange(b) < 10, torch.randint(c, (b,), generator=random), -1)
    truth = torch.randint(-1, c, (b,), generator=random)
    first = Target.plain(logits, uncertainty)
    second = first.kept(uncertainty < 0.6)
    third = second.kept(torch.rand(b, generator=random) < 0.7)
    seen = summarised({k: t.tolist() for k, t in batch_sums([first, second, third], labels, truth).items()}, ["A", "B"])

    said, kept = logits.argmax(1).tolist(), third.weight.tolist()
    n = [sum(int(w > 0) for w in stage.weight.tolist()) for stage in (first, second, third)]
    assert seen["kept"] == {"source": 1.0, "A": n[1] / b, "B": n[2] / n[1], "all": n[2] / b}
    asked = [i for i in range(b) if labels[i] < 0 and truth[i] >= 0]
    right = [i for i in asked if said[i] == truth[i]]
    chosen = [i for i in asked if kept[i]]
    assert seen["accuracy"] == {
        "all": len(right) / len(asked),
        "selected": len([i for i in chosen if said[i] == truth[i]]) / len(chosen),
    }
    assert seen["classes"] == [sum(labels[i] < 0 and kept[i] > 0 and said[i] == k for i in range(b)) for k in range(c)]
    for part, mask in (("labelled", labels >= 0), ("unlabelled", labels < 0)):
        values = uncertainty[mask].double()
        assert seen["uncertainty"][part]["mean"] == pytest.approx(values.mean().item())
        expected = np.quantile(values.numpy(), QUANTILES, method="inverted_cdf")
        assert seen["uncertainty"][part]["quantiles"] == pytest.approx(expected.tolist(), rel=0.006)


def test_where_nobody_knows_the_labels_accuracy_is_none() -> None:
    target = Target.plain(torch.randn(5, 3))
    nobody = torch.full((5,), -1)
    seen = summarised({k: t.tolist() for k, t in batch_sums([target], nobody, nobody).items()}, [])
    assert seen["accuracy"] == {"selected": None, "all": None}
    assert "uncertainty" not in seen
    nothing = target.kept(torch.zeros(5))
    seen = summarised(
        {k: t.tolist() for k, t in batch_sums([target, nothing], nobody, torch.zeros(5).long()).items()}, ["F"]
    )
    assert seen["accuracy"]["selected"] is None
    assert seen["kept"] == {"source": 1.0, "F": 0.0, "all": 0.0}


def test_a_phase_within_another_counts_for_itself_alone() -> None:
    watch = Stopwatch()
    with watch.phase("outer"):
        time.sleep(0.01)
        with watch.phase("inner"):
            time.sleep(0.03)
        time.sleep(0.01)
    assert watch.seconds["inner"] >= 0.03
    assert 0.02 <= watch.seconds["outer"] < 0.03


def states(run: Run) -> dict[str, Tensor]:
    return {name: t.clone() for name, t in run.method.state.state_dict().items()}


@pytest.mark.parametrize("name", METHODS)
def test_weights_and_records_are_the_same_to_the_bit_with_the_observer_off(name: str, tmp_path: Path) -> None:
    seen, unseen = build(small(name, 6)), build(small(name, 6))
    for run, observer, out in ((seen, run_observer(seen), "on"), (unseen, None, "off")):
        (tmp_path / out).mkdir()
        progress = Progress(run, RunFolder(tmp_path / out), observer=observer)
        for _ in range(6):
            progress.advance()
    a, b = states(seen), states(unseen)
    assert a.keys() == b.keys()
    assert all(torch.equal(a[key], b[key]) for key in a)
    on, off = (RunFolder(tmp_path / out).load_metrics() for out in ("on", "off"))
    fields = ["epoch", "step", "e", "losses", "learning_rate", "validation_error", "validation_errors", "seconds"]
    assert list(off[0]) == fields
    assert [{k: line[k] for k in fields[:-1]} for line in on] == [{k: line[k] for k in fields[:-1]} for line in off]
    for line in on:
        terms = [t for t, term in seen.method.terms.items() if isinstance(term, Consistency)]
        assert list(line["targets"]) == terms
        for record in line["targets"].values():
            assert 0 <= record["kept"]["all"] <= 1
            assert len(record["classes"]) == 2


def test_an_epoch_s_record_has_the_papers_quantities(tmp_path: Path) -> None:
    config = small("ft-ccl", 40, options={"teachers": 2, "draws": "3"})
    train(build(config), RunFolder(tmp_path / "run"))
    lines = RunFolder(tmp_path / "run").load_metrics()
    line = lines[len(lines) // 2]
    terms = build(config).method.terms
    clock = Clock(line["step"] - 1, config.steps, line["batch"])
    assert line["batch"] == 56
    for name in ("consistency 1", "consistency 2"):
        term = terms[name]
        hard, probabilistic, temper = term.refine  # type: ignore[attr-defined]
        assert line["now"][name] == {
            "lambda": term.weight(clock),  # type: ignore[attr-defined]
            "k": hard.k(clock),
            "p_max": probabilistic.p_max(clock),
            "v_max": temper.v_max(clock),
        }
        seen = line["targets"][name]
        assert list(seen["kept"]) == ["source", "TopK", "Probabilistic", "Temper", "all"]
        assert seen["kept"]["source"] == seen["kept"]["Temper"] == 1
        assert seen["kept"]["all"] == pytest.approx(seen["kept"]["TopK"] * seen["kept"]["Probabilistic"])
        assert seen["uncertainty"]["unlabelled"]["quantiles"] == sorted(seen["uncertainty"]["unlabelled"]["quantiles"])
    assert line["now"]["supervised 1"] == {}
    assert {"batch", "views", "losses", "backward", "optimiser", "followers", "observing"} <= set(line["time"])
    assert line["images_per_second"] > 0


def test_selected_accuracy_is_that_of_the_very_targets_of_the_steps(tmp_path: Path) -> None:
    config = small("ft-ccl", 9, options={"draws": "3"})
    run, shadow = build(config), build(config)
    progress = Progress(run, RunFolder(tmp_path), observer=run_observer(run))
    term = shadow.method.terms["consistency"]
    assert isinstance(term, Consistency)
    right = chosen = 0
    per_epoch = run.batches.per_epoch
    for number in range(min(9, per_epoch)):
        step = shadow.step(number)
        target, truth = term.target(step), shadow.data.train.labels[step.batch.index]
        mask = (step.batch.labels < 0) & (target.weight > 0)
        right += int((target.logits.argmax(1) == truth)[mask].sum())
        chosen += int(mask.sum())
        shadow.advance(number)
        progress.advance()
    (line,) = RunFolder(tmp_path).load_metrics()
    assert line["targets"]["consistency"]["accuracy"]["selected"] == right / chosen


def test_stopped_in_mid_epoch_the_record_goes_on(tmp_path: Path) -> None:
    config = small("ft-ccl", 12, options={"draws": "2"})
    folders = [RunFolder(tmp_path / name) for name in ("whole", "stopped")]
    train(build(config), folders[0])
    run = build(config)
    folders[1].create(run)
    progress = Progress.of(run, folders[1], observe=True)
    for _ in range(5):
        progress.advance()
    progress.save()
    assert progress.step % run.batches.per_epoch
    again = build(config)
    progress = Progress.of(again, folders[1], observe=True)
    json.dumps(run_observer(again).state())
    while progress.step < config.steps:
        progress.advance()
    whole, stopped = ([{k: v for k, v in r.items() if k not in VARYING} for r in f.load_metrics()] for f in folders)
    assert whole == stopped


def test_the_observer_costs_little(tmp_path: Path) -> None:
    settings = {"data": "digits", "labels": 20, "width": 16, "steps": 20, "threads": 1, "method": "ft-ccl"}
    train(build(complete(resolve(settings))), RunFolder(tmp_path / "run"))
    times = [line["time"] for line in RunFolder(tmp_path / "run").load_metrics()]
    assert sum(t["observing"] for t in times) < 0.05 * sum(sum(t.values()) for t in times)
