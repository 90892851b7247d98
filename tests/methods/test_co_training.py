"""Deep co-training: the agreement against the full Jensen-Shannon divergence, and the examples that fool a partner."""

from math import log

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from certus.config import Config
from certus.core.losses import js
from certus.methods import METHODS
from certus.methods.co_training import Withstand, fooling
from certus.methods.partners import partner
from certus.networks.modes import evaluating
from certus.training.build import build
from certus.training.planning import complete

SETTINGS = {  # not those of the presets, which are tuned anew now and then
    "moons": {"dropout": 0.1, "translate": 0, "noise": 0.3, "learning_rate": 0.02},
    "digits": {"dropout": 0.2, "translate": 0, "noise": 0.5, "learning_rate": 0.2},
}
MOONS = {"data": "moons", "labels": 6, "width": 16, "labelled_batch": 6, "unlabelled_batch": 20}
DIGITS = {"data": "digits", "labels": 10, "width": 4, "labelled_batch": 10, "unlabelled_batch": 20}
LOUD = {"agreement": 1.0, "difference": 1.0, "ramp": 0.0}
every_data = pytest.mark.parametrize("data", [MOONS, DIGITS], ids=["vectors", "images"])


def plain(given):
    """The method's own defaults where nothing is given."""
    options = METHODS[given["method"]].defaults() | dict(given.get("options", {}))
    return Config(**SETTINGS[given["data"]] | dict(given) | {"options": options})


def run(data=MOONS, trained=3, **settings):
    """After a few steps, and without dropout unless it is asked for."""
    given = {"method": "co-training", "validation": 0, "steps": 12, "threads": 1, "dropout": 0.0}
    options = LOUD | settings.pop("options", {})
    training = build(complete(plain({**data, **given, **settings, "options": options})))
    for number in range(trained):
        training.advance(number)
    return training


def full_js(p, q):
    """H((p + q)/2) − (H(p) + H(q))/2 of probabilities, gradient into both."""

    def h(x):
        return -(x * x.log()).sum(1)

    return (h((p + q) / 2) - (h(p) + h(q)) / 2).mean()


# --- agreement --------------------------------------------------------------------------------------------------------


@given(st.integers(0, 2**32), st.integers(1, 6))
def test_one_sided_agreement_has_the_gradient_of_the_full_divergence_in_each(seed, count):
    random = torch.Generator().manual_seed(seed)
    a, b = torch.randn(2, count, 3, generator=random, dtype=torch.float64)
    a.requires_grad_()
    b.requires_grad_()
    one = torch.ones(count, dtype=torch.float64)
    whole = torch.autograd.grad(full_js(a.softmax(1), b.softmax(1)), (a, b))
    parts = torch.autograd.grad(js(a, b, one).mean() + js(b, a, one).mean(), (a, b))
    for expected, got in zip(whole, parts, strict=True):
        assert torch.allclose(got, expected, rtol=0, atol=1e-9)
    assert full_js(a.softmax(1), b.softmax(1)).item() == pytest.approx(js(a, b, one).mean().item(), abs=1e-9)


@every_data
def test_in_a_run_the_agreement_terms_give_each_student_that_gradient(data):
    training = run(data, options={"agreement": 2.5})
    step, students = training.step(3), training.method.students
    losses = training.method.losses(step)
    said = [step.learn(net, "a") for net in students]
    whole = 2.5 * full_js(*(logits.softmax(1) for logits in said))
    assert whole > 0
    for i, net in enumerate(students, start=1):
        assert losses[f"agreement {i}"].item() == pytest.approx(whole.item(), rel=1e-3)
        wanted = torch.autograd.grad(whole, net.head.weight, retain_graph=True)[0]
        got = torch.autograd.grad(losses[f"agreement {i}"], net.head.weight, retain_graph=True)[0]
        assert wanted.abs().max() > 0
        assert torch.allclose(got, wanted, rtol=1e-3, atol=1e-6)


def test_the_difference_is_the_cross_entropy_with_the_partners_clean_answer():
    training = run(dropout=0.3, options={"difference": 0.7, "epsilon": 0.2})
    step, students = training.step(3), training.method.students
    losses = training.method.losses(step)
    for i, other in ((0, 1), (1, 0)):
        clean = step.learn(students[other], "a").detach().double().softmax(1)
        fooled = step.probe(students[i], fooling(step, students[other], 0.2), "a").detach().double().softmax(1)
        total = 0.0
        for p, q in zip(fooled.tolist(), clean.tolist(), strict=True):
            total -= sum(b * log(a) for a, b in zip(p, q, strict=True))
        assert losses[f"difference {i + 1}"].item() == pytest.approx(0.7 * total / len(step.batch), rel=1e-4)


# --- examples that fool -----------------------------------------------------------------------------------------------


def labels_of(step, net):
    """The label, or what the network says itself."""
    with torch.no_grad(), evaluating(net):
        said = net(step.view("a")).argmax(1).tolist()
    labels = [label if label >= 0 else said[i] for i, label in enumerate(step.batch.labels.tolist())]
    return torch.tensor(labels), torch.tensor(said)


@every_data
@pytest.mark.parametrize("seed", range(3))
def test_they_raise_the_cross_entropy_of_the_network_that_they_are_made_for(data, seed):
    training = run(data, seed=seed, dropout=0.3)
    step = training.step(3)
    for net in training.method.students:
        x, labels = step.view("a"), labels_of(step, net)[0]
        with torch.no_grad(), evaluating(net):
            signs = torch.randn(x.shape, generator=torch.Generator().manual_seed(seed)).sign()
            before, after, chance = (
                F.cross_entropy(net(images), labels).item()
                for images in (x, fooling(step, net, 0.02), x + 0.02 * signs)
            )
        assert after > before
        assert after > chance


@every_data
def test_each_pixel_moves_by_epsilon_up_the_gradient_of_the_loss_on_the_true_label(data):
    """True labels where there are some: at this point the network is wrong about some of them."""
    training = run(data, trained=1, dropout=0.3)
    step, wrong = training.step(3), 0
    for net in training.method.students:
        labels, said = labels_of(step, net)
        known = step.batch.labels >= 0
        wrong += int((said[known] != step.batch.labels[known]).sum())
        x = step.view("a").detach().clone().requires_grad_()
        with evaluating(net):
            F.cross_entropy(net(x), labels, reduction="sum").backward()
        moved = fooling(step, net, 0.25) - step.view("a")
        clear = x.grad.abs() > 1e-6
        assert clear.float().mean() > 0.5
        assert torch.allclose(moved[clear], 0.25 * x.grad.sign()[clear], rtol=0, atol=1e-5)
    assert wrong > 0


@every_data
def test_without_epsilon_images_stay_as_they_are(data):
    training = run(data, options={"epsilon": 0.0})
    step, students = training.step(3), training.method.students
    for i, net in enumerate(students):
        assert torch.equal(fooling(step, net, 0.0), step.view("a"))
        assert torch.allclose(Withstand(students, i, 0.0)(step), step.learn(net, "a"), rtol=0, atol=1e-5)


def test_making_them_leaves_no_trace():
    training = run(DIGITS, dropout=0.3)
    step = training.step(3)
    for net in training.method.students:
        before = {name: t.clone() for name, t in net.state_dict().items()}
        net.zero_grad(set_to_none=True)
        images = fooling(step, net, 0.1)
        assert not images.requires_grad
        assert all(torch.equal(t, before[name]) for name, t in net.state_dict().items())
        assert all(p.grad is None for p in net.parameters())
        assert all(m.training for m in net.modules())


def test_each_withstands_what_fools_its_partner_not_itself():
    training = run(options={"students": 3, "epsilon": 0.5})
    step, students = training.step(3), training.method.students
    for i, net in enumerate(students):
        other = students[partner(step, students, i)]
        assert other is not net
        got = Withstand(students, i, 0.5)(step)
        assert torch.equal(got, step.probe(net, fooling(step, other, 0.5), "a"))
        assert not torch.allclose(got, step.probe(net, fooling(step, net, 0.5), "a"), atol=1e-4)


def test_all_look_at_the_same_images_with_dropout_of_their_own():
    training = run(DIGITS, trained=0, dropout=0.5)
    step, (one, two) = training.step(0), training.method.students
    two.load_state_dict(one.state_dict())
    assert not torch.equal(step.learn(one, "a"), step.learn(two, "a"))
    without = run(DIGITS, trained=0)
    step, (one, two) = without.step(0), without.method.students
    two.load_state_dict(one.state_dict())
    assert torch.equal(step.learn(one, "a"), step.learn(two, "a"))
