"""The contract of every method: one battery of tests over the registry."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from builders import same_state
from torch import Tensor

from certus.config import Config, resolve
from certus.core.terms import Consistency
from certus.methods import METHODS
from certus.methods.ccl import DRAWN, UNDRAWN
from certus.networks.roles import role
from certus.training import build as building
from certus.training.build import build
from certus.training.loop import Progress
from certus.training.planning import complete
from certus.training.run import Run
from certus.training.run_folder import RunFolder

SMALL = {"data": "moons", "labels": 6, "validation": 0, "width": 8, "labelled_batch": 6, "unlabelled_batch": 10}
TINY_DIGITS = {"data": "digits", "labels": 10, "validation": 0, "width": 2, "labelled_batch": 5, "unlabelled_batch": 9}
STEPS = 6

every_method = pytest.mark.parametrize("name", METHODS)
STRENGTH = {"weight": 5.0, "ramp": 80.0}  # presets give each method its own
PACE = {"learning_rate": 0.02}
CIRCLES = [name for name, recipe in METHODS.items() if "teachers" in recipe.defaults()]


# Options under which every term is active within a few steps of an untrained network.
ACTIVE: dict[str, dict[str, object]] = {"fixmatch": {"threshold": 0.0}, "dual-student": {"threshold": 0.0}}


def config(name: str, options: dict[str, object] | None = None, **settings: object) -> Config:
    chosen = ACTIVE.get(name, {}) | (options or {})
    given = {**SMALL, "method": name, "steps": STEPS, "threads": 1, "options": chosen, **settings}
    return complete(resolve(given))


def trained(run: Run, first: int = 0, last: int = STEPS) -> dict[str, Tensor]:
    for number in range(first, last):
        run.advance(number)
    return {name: t.clone() for name, t in run.method.state.state_dict().items()}


def gradients(run: Run, term: str, number: int = STEPS - 1) -> dict[str, float]:
    """The largest gradient of one term in each network of the method."""
    run.method.state.zero_grad(set_to_none=True)
    run.method.terms[term](run.step(number)).backward()
    networks = {f"student {i}": net for i, net in enumerate(run.method.students)}
    networks |= {f"answer {i}": net for i, net in enumerate(run.method.answers) if net not in run.method.students}
    return {
        name: max((p.grad.abs().max().item() for p in net.parameters() if p.grad is not None), default=0.0)
        for name, net in networks.items()
    }


@every_method
@pytest.mark.parametrize("teachers", [1, 3])
def test_each_term_teaches_its_student_and_no_other_network(name: str, teachers: int) -> None:
    if teachers > 1 and name not in CIRCLES:
        pytest.skip("not a circle")
    run = build(config(name, {"teachers": teachers} if name in CIRCLES else {}))
    for number in range(2):  # so that teachers and students differ
        run.advance(number)
    taught = set()
    for term in run.method.terms:
        index = run.method.students.index(run.method.terms[term].student)
        taught.add(index)
        for network, size in gradients(run, term).items():
            assert (size > 0) == (network == f"student {index}"), (term, network, size)
    assert taught == set(range(len(run.method.students)))


@every_method
def test_no_gradient_flows_into_a_target(name: str) -> None:
    run = build(config(name))
    run.advance(0)
    for term in run.method.terms.values():
        if isinstance(term, Consistency):
            target = term.target(run.step(3))
            assert not target.logits.requires_grad
            assert not target.weight.requires_grad
            assert not target.temperature.requires_grad


@every_method
def test_hidden_labels_are_unreachable(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = build(config(name))
    data, parts = honest.data, honest.split
    hidden = torch.ones(len(data.train), dtype=torch.bool)
    hidden[parts.labelled] = False
    assert (honest.labels[hidden] == -1).all()
    garbage = data.train.labels.clone()
    garbage[hidden] = 99
    monkeypatch.setattr(building, "load", lambda *_: replace(data, train=replace(data.train, labels=garbage)))
    monkeypatch.setattr(building, "split_of", lambda *_: parts)
    assert same_state(trained(build(config(name))), trained(honest))


@every_method
def test_the_same_seed_gives_the_same_losses_and_another_gives_others(name: str) -> None:
    first, again, other = (build(config(name, seed=seed)) for seed in (0, 0, 1))
    for run in (first, again, other):
        for number in range(STEPS - 1):  # a memory is empty at first
            run.advance(number)
    a, b, c = (
        {term: loss.item() for term, loss in run.method.losses(run.step(STEPS - 1)).items()}
        for run in (first, again, other)
    )
    assert a == b
    assert all(a[term] != c[term] for term in a)


@every_method
@pytest.mark.parametrize("data", [SMALL, TINY_DIGITS], ids=["vectors", "images"])
def test_saving_and_loading_in_between_changes_nothing(name: str, data: dict[str, object], tmp_path) -> None:
    settings = config(name, **data)
    whole = trained(build(settings))
    first = Progress(build(settings), RunFolder(tmp_path))
    for _ in range(STEPS // 2):
        first.advance()
    first.save()
    second = Progress.of(build(settings), RunFolder(tmp_path), observe=False)
    assert second.step == STEPS // 2
    assert same_state(trained(second.run, second.step), whole)


@every_method
@pytest.mark.parametrize(
    "sizes", [{"labelled_batch": 1}, {"unlabelled_batch": 1}, {"labelled_batch": 1, "unlabelled_batch": 1}], ids=str
)
@pytest.mark.parametrize("data", [SMALL, TINY_DIGITS], ids=["vectors", "images"])
def test_the_loss_is_finite_on_the_smallest_batches(name: str, data: dict[str, object], sizes: dict[str, int]) -> None:
    run = build(config(name, **{**data, **sizes}))
    for number in range(STEPS):
        assert all(torch.isfinite(loss) for loss in run.advance(number).values())
    assert all(torch.isfinite(p).all() for net in run.method.students for p in net.parameters())


@every_method
def test_the_loss_is_finite_when_every_answer_is_saturated(name: str) -> None:
    run = build(config(name))
    for net in {*run.method.students, *run.method.answers}:
        net.head.weight.data.mul_(1e6)
    step = run.step(STEPS - 1)
    losses = run.method.losses(step)
    sum(losses.values()).backward()
    assert all(torch.isfinite(loss) for loss in losses.values())
    for net in run.method.students:
        assert all(torch.isfinite(p.grad).all() for p in net.parameters() if p.grad is not None)


@every_method
def test_repr_prints_the_recipe(name: str) -> None:
    method = build(config(name)).method
    lines = repr(method).splitlines()
    assert lines[0] == name
    assert all(any(line.strip().startswith(f"{term} = ") for line in lines) for term in method.terms)
    assert lines[-1] == f"  answer: {', '.join(map(role, method.answers))}"
    assert "object at" not in repr(method)
    assert "Sequential" not in repr(method)


@every_method
def test_statistics_move_once_per_step_in_students_and_never_in_teachers(name: str) -> None:
    run = build(config(name, **TINY_DIGITS))
    run.advance(0)
    state = run.method.state.state_dict()
    before = {n: t.clone() for n, t in state.items() if "running_" in n or "num_batches" in n}
    assert before
    run.method.losses(run.step(1))
    after = run.method.state.state_dict()
    for n, t in before.items():
        if n.startswith("students"):
            assert not torch.equal(t, after[n])
            if "num_batches" in n:
                assert after[n] == t + 1
        else:
            assert torch.equal(t, after[n])


ALTERNATIVES: dict[str, object] = {
    "teachers": 2,
    "weight": 3.5,
    "ramp": 300.0,
    "decay": 0.15,
    "metric": "mi",
    "certainty": "paper",
    "draws": "independent:3",
    "damp_draws": 2,
    "hard": False,
    "beta": 2.0,
    "probabilistic": False,
    "rho": 0.9,
    "temper": False,
    "heat": 9.0,
    "student_view": "adversarial",
    "epsilon": 3.0,
    "xi": 10.0,
    "iterations": 3,
    "threshold": 0.99,
    "alpha": 0.3,
    "graph": 3.0,
    "margin": 9.0,
    "rate": 0.9,
    "spread": 2.5,
    "regression": 1.0,
    "start": 100.0,
    "neighbours": 3,
    "over": "inputs",
    "gamma": 0.5,
    "students": 3,
    "agreement": 2.5,
    "difference": 3.0,
    "turn": 120.0,
    "fall": 400.0,
    "cycle": 100.0,
    "every": 100.0,
    "shift": 0.5,
    "drop": 0.6,
    "scale": 0.5,
    "stabilisation": 3.0,
    "horizon": 0.3,
    "distance": "cross-entropy",
    "sharpen": 0.5,
}


NEEDS: dict[str, dict[str, object]] = {  # what must be switched on for an option to matter
    "beta": {"hard": True},
    "rho": {"probabilistic": True},
    "heat": {"temper": True},
    "epsilon": {"student_view": "adversarial"},
    "damp_draws": {"damp": True},
}


@pytest.mark.parametrize(("name", "option"), [(name, o) for name, r in METHODS.items() for o in r.defaults()])
def test_every_option_changes_the_result(name: str, option: str) -> None:
    default = METHODS[name].defaults()[option]
    other = (not default) if isinstance(default, bool) else ALTERNATIVES[option]
    if (name, option) == ("fixmatch", "student_view"):
        other = "weak"
    assert other != default
    switched_on = {
        key: value for key, value in NEEDS.get(option, {}).items() if key in METHODS[name].defaults() and key != option
    }
    settings = {"unlabelled_batch": 40, "steps": STEPS}
    a = trained(build(config(name, switched_on, **settings)))
    b = trained(build(config(name, {**switched_on, option: other}, **settings)))
    assert not same_state(a, b)


@pytest.mark.parametrize("name", CIRCLES)
def test_a_circle_of_one_is_the_plain_method_and_students_of_a_larger_circle_differ(name: str) -> None:
    three = build(config(name, {"teachers": 3}))
    one = build(config(name))
    first, second, third = three.method.students
    assert same_state(first, one.method.students[0])
    assert not same_state(first, second)
    assert not same_state(second, third)
    step = three.step(0)
    terms = [term for name, term in three.method.terms.items() if name.startswith("consistency")]
    seen = [term.read(step) for term in terms]
    assert not torch.equal(seen[0], seen[1])
    views = [step.view(name) for name in ("a 1", "a 2", "b 1", "b 2")]
    assert all(not torch.equal(x, y) for i, x in enumerate(views) for y in views[:i])
    assert [role(term.source.net) for term in terms] == ["teacher 3", "teacher 1", "teacher 2"]


def test_ccl_with_nothing_switched_on_is_mean_teacher_to_the_bit() -> None:
    off = {"hard": False, "probabilistic": False, "temper": False}
    one, other = config("ft-ccl", STRENGTH | off, **PACE), config("mean-teacher", STRENGTH, **PACE)
    assert same_state(trained(build(one)), trained(build(other)))


@pytest.mark.parametrize("metric", [*DRAWN, *UNDRAWN])
def test_ccl_that_keeps_every_target_is_mean_teacher_to_the_bit(metric: str) -> None:
    """With k so large that all are kept, draws and ranks do not change the student."""
    keep_all = {"beta": 1e9, "probabilistic": False, "temper": False, "metric": metric}
    one, other = config("ft-ccl", STRENGTH | keep_all, **PACE), config("mean-teacher", STRENGTH, **PACE)
    assert same_state(trained(build(one)), trained(build(other)))


def test_reversed_ranks_are_those_of_confidence_in_reverse() -> None:
    def ranks(metric: str) -> torch.Tensor:
        run = build(config("ft-ccl", {"metric": metric}))
        return run.method.terms["consistency"].targets(run.step(0))[0].rank

    sure, unsure = ranks("confidence"), ranks("reversed")
    assert torch.equal(sure + unsure, torch.full_like(sure, len(sure) + 1))


def test_every_metric_gives_its_own_run() -> None:
    metrics = (*DRAWN, *UNDRAWN)
    draws = {m: {} if m in UNDRAWN else {"draws": "independent:10"} for m in metrics}
    results = [trained(build(config("ft-ccl", {"metric": m, **draws[m]}, unlabelled_batch=60))) for m in metrics]
    assert all(not same_state(a, b) for i, a in enumerate(results) for b in results[:i])
