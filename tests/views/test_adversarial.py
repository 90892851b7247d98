"""Adversarial directions against eigenvectors, finite differences and loops; VAT against its own definition."""

from copy import deepcopy
from itertools import pairwise
from math import log

import pytest
import torch
from builders import normal, plain_run, small_network, small_step
from hypothesis import given
from hypothesis import strategies as st

from certus.core.losses import kl
from certus.core.student import Adversarial, See
from certus.teachers import Own
from certus.views.adversarial import unit, worst_direction, worst_sign

SEEDS = range(5)
MOONS = {"data": "moons", "labels": 6, "width": 8, "labelled_batch": 6, "unlabelled_batch": 10}
DIGITS = {"data": "digits", "labels": 10, "width": 4, "labelled_batch": 5, "unlabelled_batch": 9}


def vat(options=None, **settings):
    return plain_run("vat", options, steps=6, **settings)


every_network = pytest.mark.parametrize("name", ["mlp", "cnn13"])


# --- unit -------------------------------------------------------------------------------------------------------------


@given(st.integers(0, 2**32), st.floats(-22, 18), st.sampled_from([(5,), (2, 3, 3)]))
def test_unit_has_length_one_per_image_and_keeps_the_direction(seed, power, shape):
    direction = normal(4, *shape, seed=seed) * 10**power
    for given_, got in zip(direction.double(), unit(direction).double(), strict=True):
        assert torch.allclose(got, given_ / given_.norm(), rtol=0, atol=1e-6)


def test_a_direction_of_zeros_stays_zeros_and_does_not_change_the_others():
    direction = torch.tensor([[0.0, 0.0], [3.0, 4.0], [-0.0, 0.0]])
    assert torch.allclose(unit(direction), torch.tensor([[0.0, 0.0], [0.6, 0.8], [0.0, 0.0]]))


@pytest.mark.parametrize("size", [1e-12, 1e-20, 1e-30, 1e-38, 1e-45])
def test_tiny_gradients_stay_finite_and_keep_their_direction(size):
    got = unit(size * torch.tensor([[1.0, -2.0, 2.0]]))
    assert torch.isfinite(got).all()
    assert got.norm() <= 1 + 1e-6
    assert (got.sign() * torch.tensor([1.0, -1.0, 1.0]) >= 0).all()


# --- the worst direction of a quadratic -------------------------------------------------------------------------------


def hessians(seed, count=3, size=6):
    """Symmetric, each with eigenvalues 1 … and a largest one of twice the next."""
    random = torch.Generator().manual_seed(seed)
    basis = torch.linalg.qr(torch.randn(count, size, size, generator=random, dtype=torch.float64)).Q
    values = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 10.0], dtype=torch.float64)
    return basis @ torch.diag(values) @ basis.mT, basis[:, :, -1]


def quadratic(hessian):
    """D_i(r) = ½ rᵀ H_i r."""
    return lambda r: 0.5 * torch.einsum("bi,bij,bj->b", r, hessian, r)


@given(st.integers(0, 2**32), st.floats(1e-6, 10))
def test_one_iteration_is_one_product_with_the_hessian(seed, xi):
    hessian, _ = hessians(seed)
    start = normal(3, 6, seed=seed + 1, dtype=torch.float64)
    got = worst_direction(quadratic(hessian), start, xi, iterations=1)
    for i in range(3):
        product = hessian[i] @ start[i]
        assert torch.allclose(got[i], product / product.norm(), rtol=0, atol=1e-12)


@given(st.integers(0, 2**32))
def test_many_iterations_find_the_main_eigenvector(seed):
    hessian, main = hessians(seed)
    start = normal(3, 6, seed=seed + 1, dtype=torch.float64)
    got = worst_direction(quadratic(hessian), start, iterations=80)
    assert torch.allclose((got * main).sum(1).abs(), torch.ones(3, dtype=torch.float64), rtol=0, atol=1e-9)


def test_each_iteration_comes_closer():
    hessian, main = hessians(0, count=3)
    start = normal(3, 6, seed=1, dtype=torch.float64)
    aligned = [(worst_direction(quadratic(hessian), start, iterations=n) * main).sum(1).abs() for n in range(8)]
    assert all((later > earlier).all() for earlier, later in pairwise(aligned))


def test_the_direction_carries_no_gradient():
    weight = torch.ones(2, 3, requires_grad=True)
    got = worst_direction(lambda r: (weight * r).square().sum(1), torch.randn(2, 3))
    assert not got.requires_grad
    assert weight.grad is None


# --- on networks ------------------------------------------------------------------------------------------------------


@every_network
@pytest.mark.parametrize("seed", SEEDS)
def test_the_adversarial_direction_changes_the_answer_more_than_a_random_one(name, seed):
    net, step = small_network(name, seed), small_step(name, seed)
    one = torch.ones(len(step.batch))
    clean, x, epsilon = step.learn(net, "a").detach(), step.view("a"), 0.5
    random = unit(normal(*x.shape, seed=seed + 100))

    @torch.no_grad()
    def change(images):
        return kl(step.probe(net, images, "a"), clean, one).mean()

    perturbed = Adversarial(net, "a", epsilon).perturbed(step)
    assert torch.allclose((perturbed - x).flatten(1).norm(dim=1), torch.full((len(x),), epsilon), rtol=1e-4)
    assert change(perturbed) > 1.2 * change(x + epsilon * random)


@every_network
def test_the_direction_is_a_function_of_the_step_and_the_perturbation(name):
    net = small_network(name)
    first = Adversarial(net, "a").perturbed(small_step(name))
    assert torch.equal(first, Adversarial(net, "a").perturbed(small_step(name)))
    assert not torch.equal(first, Adversarial(net, "a").perturbed(small_step(name, number=1)))
    assert not torch.equal(first, Adversarial(net, "b").perturbed(small_step(name)))


@every_network
@pytest.mark.parametrize("iterations", [1, 3])
def test_the_divergence_equals_a_naive_computation(name, iterations):
    """Every pass has the same dropout; images and classes one by one."""
    net, epsilon, xi = small_network(name), 0.7, 0.05
    step = small_step(name, count=8)
    read = Adversarial(net, "a", epsilon, xi, iterations)
    got = kl(read(step), Own(net, "a")(step).logits, torch.ones(8)).detach()

    again = small_step(name, count=8)
    x = again.view("a")

    def answer(images):
        torch.manual_seed(0)  # the state before does not matter
        again.seed_dropout("a", net)
        return net(images).softmax(1)

    def divergence(q, p):
        return sum(float(q[c]) * (log(q[c]) - p[c].log()) for c in range(3))

    clean = answer(x).detach()
    direction = torch.randn(x.shape, generator=again.generator("direction a"))
    for _ in range(iterations):
        direction = torch.stack([d / d.norm() for d in direction])
        r = (xi * direction).requires_grad_()
        shifted = answer(x + r)
        (direction,) = torch.autograd.grad(sum(divergence(clean[i], shifted[i]) for i in range(8)), r)
    direction = torch.stack([d / d.norm() for d in direction])
    shifted = answer(x + epsilon * direction).detach()
    expected = torch.stack([divergence(clean[i], shifted[i]) for i in range(8)])
    assert expected.max() > 1e-4
    assert torch.allclose(got, expected, rtol=2e-3, atol=1e-6)


@every_network
def test_the_inner_passes_change_no_state(name):
    net = small_network(name)
    alone = deepcopy(net)
    Adversarial(net, "a", iterations=2)(small_step(name))
    small_step(name).learn(alone, "a")
    for (buffer, moved), expected in zip(net.named_buffers(), alone.buffers(), strict=True):
        assert torch.equal(moved, expected), buffer
    assert all(p.grad is None for p in net.parameters())
    assert all(m.training for m in net.modules())


def test_in_a_run_statistics_are_those_of_the_clean_pass_alone():
    training = vat({"iterations": 2}, **DIGITS)
    (student,) = training.method.students
    alone = deepcopy(student)
    training.method.losses(training.step(1))
    See(alone, "a")(training.step(1))
    moved, expected = dict(student.named_buffers()), dict(alone.named_buffers())
    assert any(name.endswith("running_var") for name in moved)
    assert all(torch.equal(moved[name], expected[name]) for name in moved)


# --- VAT --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [MOONS, DIGITS], ids=["vectors", "images"])
def test_the_term_is_0_without_a_perturbation_and_small_with_a_small_one(data):
    def term(epsilon):
        training = vat({"epsilon": epsilon}, **data)
        return training.method.losses(training.step(2))["adversarial"].item()

    assert term(0.0) == 0
    far, near, nearer = (term(epsilon) for epsilon in (0.1, 0.03, 0.01))
    assert far > near > nearer > 0
    assert nearer < 0.05 * far  # it falls like ε²
    assert term(1e-3) < 1e-3 * far


def test_vat_without_a_perturbation_learns_from_the_labels_alone():
    still, unweighted = vat({"epsilon": 0.0}, **DIGITS), vat({"weight": 0.0}, **DIGITS)
    for number in range(4):
        for training in (still, unweighted):
            training.advance(number)
    for a, b in zip(still.method.students[0].parameters(), unweighted.method.students[0].parameters(), strict=True):
        assert torch.allclose(a, b, rtol=0, atol=1e-6)


def test_the_term_is_a_function_of_the_step():
    def terms(number):
        training = vat(**DIGITS)
        return {name: loss.item() for name, loss in training.method.losses(training.step(number)).items()}

    assert terms(2) == terms(2)
    assert terms(2)["adversarial"] != terms(3)["adversarial"]


def test_entropy_is_that_of_the_clean_answers_with_the_weight_of_the_divergence():
    training = vat({"ent": True, "weight": 0.7, "ramp": 0.0}, **MOONS)
    step = training.step(1)
    entropy = training.method.losses(step)["entropy"]
    p = step.learn(training.method.students[0], "a").detach().double().softmax(1).tolist()
    naive = sum(-sum(q * log(q) for q in row) for row in p) / len(p)
    assert entropy.item() == pytest.approx(0.7 * naive, rel=1e-5)


# --- the sign direction -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_worst_sign_is_the_sign_of_finite_differences(seed):
    random = torch.Generator().manual_seed(seed)
    a, b = (torch.randn(*shape, generator=random, dtype=torch.float64) for shape in ((4, 5), (5, 3)))
    images = torch.randn(3, 4, generator=random, dtype=torch.float64)

    def loss(x):
        return ((x @ a).tanh() @ b).logsumexp(1)

    got, h, checked = worst_sign(loss, images), 1e-5, 0
    for i in range(3):
        for j in range(4):
            more, less = images.clone(), images.clone()
            more[i, j] += h
            less[i, j] -= h
            slope = ((loss(more) - loss(less)).sum() / (2 * h)).item()
            if abs(slope) > 1e-6:
                checked += 1
                assert got[i, j] == (1 if slope > 0 else -1)
    assert checked >= 10


def test_worst_sign_is_0_where_the_loss_does_not_depend_on_the_image_and_carries_no_gradient():
    x = torch.randn(2, 3, requires_grad=True)
    got = worst_sign(lambda images: images[:, 0].square(), x)
    assert (got[:, 1:] == 0).all()
    assert (got[:, 0] == x[:, 0].sign()).all()
    assert not got.requires_grad
    assert x.grad is None


def test_unit_of_a_tiny_direction_has_length_one() -> None:
    assert unit(1e-30 * torch.tensor([[1.0, -2.0, 2.0]])).norm().item() == pytest.approx(1, abs=1e-5)
