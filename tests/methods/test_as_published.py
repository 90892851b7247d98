"""Where a method is as its authors have it, each with the source that says so."""

import pytest
import torch
from builders import plain_run
from hypothesis import given
from hypothesis import strategies as st

from certus.config import resolve
from certus.core.refinements import Unlabelled
from certus.core.schedules import Clock
from certus.core.step import Batch, Step
from certus.core.target import Target
from certus.methods import recipe

DIGITS = {"data": "digits", "labels": 10, "width": 2, "labelled_batch": 5, "unlabelled_batch": 20}


@pytest.mark.parametrize("method", ["pi", "pi-sntg"])
def test_both_branches_of_pi_learn(method):
    """smlaine2/tempens: the loss is built from both outputs of the network, and none of them is a constant."""
    run = plain_run(method, {"weight": 3.0, "ramp": 0.0}, trained=3, **DIGITS)
    step, (student,) = run.step(3), run.method.students
    loss = run.method.losses(step)["consistency"]
    a, b = step.learn(student, "a"), run.method.terms["consistency"].source.logits(step)
    expected = 3.0 * sum(((p - q) ** 2).sum() for p, q in zip(a.softmax(1), b.softmax(1), strict=True)) / len(a)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-4)
    into_a, into_b = torch.autograd.grad(loss, (a, b), retain_graph=True)
    assert into_a.abs().max() > 0
    wanted = torch.autograd.grad(expected, (a, b))
    assert torch.allclose(into_a, wanted[0], atol=1e-7)
    assert torch.allclose(into_b, wanted[1], atol=1e-7)


def test_ma_dnn_answers_with_averaged_weights():
    """yanbeic/semi-memory: test.py restores the moving averages of train.py, α = min(0.9999, (1 + s)/(10 + s))."""
    run = plain_run("ma-dnn", steps=30, **DIGITS)
    (student,), (answering,) = run.method.students, run.method.answers
    average = [p.detach().clone() for p in student.parameters()]
    for number in range(30):
        run.advance(number)
        alpha = min(0.9999, (1 + number) / (10 + number))  # TensorFlow counts the steps that are done
        average = [alpha * m + (1 - alpha) * p.detach() for m, p in zip(average, student.parameters(), strict=True)]
    for got, wanted, last in zip(answering.parameters(), average, student.parameters(), strict=True):
        assert torch.allclose(got, wanted, atol=1e-5)
        assert not torch.equal(got, last)


@pytest.mark.parametrize("data", ["cifar10", "cifar100", "svhn"])
def test_co_training_has_its_authors_rate(data):
    """Qiao et al. 2018, section 4: SGD with learning rate 0.05."""
    assert resolve({"data": data, "method": "co-training", "network": "cnn13"}).learning_rate == 0.05


@pytest.mark.parametrize("data", ["cifar10", "cifar100", "svhn"])
@pytest.mark.parametrize("method", ["filtering-ccl", "temperature-ccl", "ft-ccl"])
def test_ccl_and_mean_teacher_have_the_same_weight(data, method):
    """Liu & Tan 2021 compare the two and print no λ."""
    ccl, teacher = (resolve({"data": data, "method": m, "network": "cnn13"}) for m in (method, "mean-teacher"))
    assert ccl.options["weight"] == teacher.options["weight"]
    assert ccl.options["ramp"] == teacher.options["ramp"] == 80


@pytest.mark.parametrize("data", ["cifar10", "cifar100", "svhn"])
def test_the_13_layer_cnn_has_its_authors_dropout(data):
    """Laine & Aila 2017, table 5: p = 0.5 after both poolings."""
    assert resolve({"data": data, "method": "ft-ccl", "network": "cnn13"}).dropout == 0.5


@pytest.mark.parametrize(
    ("method", "ramp"), [("pi", 80), ("temporal-ensembling", 80), ("dual-student", 5), ("co-training", 40)]
)
def test_ramps_are_the_authors_shares_of_a_run(method, ramp):
    """Laine & Aila 2017: 80 of 300 epochs; Ke et al. 2019: 5 of 300; Qiao et al. 2018: 80 of 600."""
    config = resolve({"data": "cifar10", "method": method, "network": "cnn13"})
    assert (config.clock, config.options["ramp"]) == (300, ramp)
    assert recipe(method).defaults()["ramp"] == ramp


@given(st.lists(st.integers(-1, 2), min_size=1, max_size=12))
def test_a_mean_over_unlabelled_images_alone(labels):
    batch = Batch(torch.zeros(len(labels), 1), torch.tensor(labels), torch.arange(len(labels)))
    step = Step(batch, Clock(0, 1, len(labels)), {}, 0)
    values = torch.arange(1.0, len(labels) + 1)
    target = Unlabelled()(Target.plain(torch.zeros(len(labels), 3)), step)
    chosen = [v for v, label in zip(values.tolist(), labels, strict=True) if label < 0]
    mean = sum(chosen) / len(chosen) if chosen else 0.0
    assert (target.weight * values).mean().item() == pytest.approx(mean, rel=1e-5)
