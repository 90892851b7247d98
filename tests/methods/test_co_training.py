"""Deep co-training: the agreement against the full Jensen-Shannon divergence, and the adversarial examples."""

from math import log

import pytest
import torch
from builders import plain_run
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from certus.core.losses import js
from certus.methods.co_training import PartnerAdversarial, adversarial_examples
from certus.methods.partners import partner
from certus.networks.modes import evaluating

MOONS = {"data": "moons", "labels": 6, "width": 16, "labelled_batch": 6, "unlabelled_batch": 20}
DIGITS = {"data": "digits", "labels": 10, "width": 4, "labelled_batch": 10, "unlabelled_batch": 20}
CONSTANT = {"agreement": 1.0, "difference": 1.0, "ramp": 0.0}
every_data = pytest.mark.parametrize("data", [MOONS, DIGITS], ids=["vectors", "images"])


def run(data=MOONS, trained=3, options=None, **settings):
    """A run after a few steps, without dropout by default."""
    options = CONSTANT | (options or {})
    return plain_run("co-training", options, trained, **{"steps": 12, "dropout": 0.0, **data, **settings})


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
    unlabelled = step.batch.labels < 0  # Qiao et al. 2018: L_cot is over these alone
    assert 0 < unlabelled.sum() < len(unlabelled)
    answers = [step.learn(net, "a")[unlabelled] for net in students]
    whole = 2.5 * full_js(*(logits.softmax(1) for logits in answers))
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
        examples = adversarial_examples(step, students[other], 0.2)
        answers = step.probe(students[i], examples, "a").detach().double().softmax(1)
        total = 0.0
        for p, q in zip(answers.tolist(), clean.tolist(), strict=True):
            total -= sum(b * log(a) for a, b in zip(p, q, strict=True))
        assert losses[f"difference {i + 1}"].item() == pytest.approx(0.7 * total / len(step.batch), rel=1e-4)


# --- adversarial examples ---------------------------------------------------------------------------------------------


def labels_of(step, net):
    """The label of each image, or else the network's answer; and all answers."""
    with torch.no_grad(), evaluating(net):
        answers = net(step.view("a")).argmax(1).tolist()
    labels = [label if label >= 0 else answers[i] for i, label in enumerate(step.batch.labels.tolist())]
    return torch.tensor(labels), torch.tensor(answers)


@every_data
@pytest.mark.parametrize("seed", range(3))
def test_adversarial_examples_raise_the_cross_entropy_of_their_network(data, seed):
    training = run(data, seed=seed, dropout=0.3)
    step = training.step(3)
    for net in training.method.students:
        x, labels = step.view("a"), labels_of(step, net)[0]
        with torch.no_grad(), evaluating(net):
            signs = torch.randn(x.shape, generator=torch.Generator().manual_seed(seed)).sign()
            before, after, chance = (
                F.cross_entropy(net(images), labels).item()
                for images in (x, adversarial_examples(step, net, 0.02), x + 0.02 * signs)
            )
        assert after > before
        assert after > chance


@every_data
def test_each_pixel_moves_by_epsilon_up_the_gradient_of_the_loss_on_the_label(data):
    """For labelled images this is the true label: at this point the network still gets some of them wrong."""
    training = run(data, trained=1, dropout=0.3)
    step, wrong = training.step(3), 0
    for net in training.method.students:
        labels, answers = labels_of(step, net)
        known = step.batch.labels >= 0
        wrong += int((answers[known] != step.batch.labels[known]).sum())
        x = step.view("a").detach().clone().requires_grad_()
        with evaluating(net):
            F.cross_entropy(net(x), labels, reduction="sum").backward()
        moved = adversarial_examples(step, net, 0.25) - step.view("a")
        clear = x.grad.abs() > 1e-6
        assert clear.float().mean() > 0.5
        assert torch.allclose(moved[clear], 0.25 * x.grad.sign()[clear], rtol=0, atol=1e-5)
    assert wrong > 0


@every_data
def test_without_epsilon_images_stay_as_they_are(data):
    training = run(data, options={"epsilon": 0.0})
    step, students = training.step(3), training.method.students
    for i, net in enumerate(students):
        assert torch.equal(adversarial_examples(step, net, 0.0), step.view("a"))
        assert torch.allclose(PartnerAdversarial(students, i, 0.0)(step), step.learn(net, "a"), rtol=0, atol=1e-5)


def test_making_adversarial_examples_changes_no_state():
    training = run(DIGITS, dropout=0.3)
    step = training.step(3)
    for net in training.method.students:
        before = {name: t.clone() for name, t in net.state_dict().items()}
        net.zero_grad(set_to_none=True)
        images = adversarial_examples(step, net, 0.1)
        assert not images.requires_grad
        assert all(torch.equal(t, before[name]) for name, t in net.state_dict().items())
        assert all(p.grad is None for p in net.parameters())
        assert all(m.training for m in net.modules())


def test_each_student_reads_the_adversarial_examples_of_its_partner_not_its_own():
    training = run(options={"students": 3, "epsilon": 0.5})
    step, students = training.step(3), training.method.students
    for i, net in enumerate(students):
        other = students[partner(step, students, i)]
        assert other is not net
        got = PartnerAdversarial(students, i, 0.5)(step)
        assert torch.equal(got, step.probe(net, adversarial_examples(step, other, 0.5), "a"))
        assert not torch.allclose(got, step.probe(net, adversarial_examples(step, net, 0.5), "a"), atol=1e-4)


def test_all_students_have_the_same_view_and_their_own_dropout():
    training = run(DIGITS, trained=0, dropout=0.5)
    step, (one, two) = training.step(0), training.method.students
    two.load_state_dict(one.state_dict())
    assert not torch.equal(step.learn(one, "a"), step.learn(two, "a"))
    without = run(DIGITS, trained=0)
    step, (one, two) = without.step(0), without.method.students
    two.load_state_dict(one.state_dict())
    assert torch.equal(step.learn(one, "a"), step.learn(two, "a"))
