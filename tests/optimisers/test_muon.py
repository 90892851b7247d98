"""Muon: its update against a naive reference, orthogonality, norm, invariances, and state that resumes."""

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import nn

from certus.optimisers.muon import COEFFICIENTS, HEAD, REST, Muon, kept_norm, moved, muon, orthogonalised

shapes = st.tuples(st.integers(1, 12), st.integers(1, 12))
seeds = st.integers(0, 2**31)


def matrix(shape, seed):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def by_singular_values(m, steps):
    """The same polynomial, applied to each singular value by itself."""
    a, b, c = COEFFICIENTS
    u, s, v = torch.linalg.svd(m, full_matrices=False)
    s = s / m.norm()
    for _ in range(steps):
        s = a * s + b * s**3 + c * s**5
    return u @ torch.diag(s) @ v


@given(shapes, seeds, st.integers(0, 5))
def test_it_is_the_polynomial_of_the_singular_values(shape, seed, steps):
    m = matrix(shape, seed)
    assert torch.allclose(orthogonalised(m, steps), by_singular_values(m, steps), atol=1e-9)


@given(shapes, seeds)
def test_the_update_is_nearly_orthogonal(shape, seed):
    m = matrix(shape, seed)
    values = torch.linalg.svdvals(m)
    assume(values.min() > 0.05 * values.max())  # a singular value of 0 stays 0
    found = torch.linalg.svdvals(orthogonalised(m, 5))
    assert found.min() > 0.6
    assert found.max() < 1.3


@given(shapes, seeds, st.floats(1e-4, 1e4))
def test_the_size_of_the_gradient_does_not_matter(shape, seed, factor):
    m = matrix(shape, seed)
    assert torch.allclose(orthogonalised(factor * m), orthogonalised(m), atol=1e-8)


@given(shapes, seeds)
def test_it_turns_with_its_gradient(shape, seed):
    """For orthogonal Q: O(QM) = Q O(M), and O(Mᵀ) = O(M)ᵀ."""
    m = matrix(shape, seed)
    q, _ = torch.linalg.qr(matrix((shape[0], shape[0]), seed + 1))
    assert torch.allclose(orthogonalised(q @ m), q @ orthogonalised(m), atol=1e-8)
    assert torch.allclose(orthogonalised(m.T), orthogonalised(m).T, atol=1e-8)


def test_a_gradient_of_zero_moves_nothing():
    momentum, matrix = moved(torch.zeros(3, 2, 2, 2), torch.zeros(3, 2, 2, 2), 0.6)
    assert matrix.shape == (3, 8)
    assert not orthogonalised(matrix, 3).any()
    assert not momentum.any()


@given(seeds)
def test_a_bank_keeps_the_norm_of_an_identity(seed):
    bank = matrix((5, 18), seed).view(5, 2, 3, 3)
    assert float(kept_norm(bank).norm()) == pytest.approx(5**0.5)
    identity = nn.init.dirac_(torch.empty(5, 6, 3, 3))
    assert torch.allclose(kept_norm(identity), identity)


def naive(weight, gradients, rate, momentum, steps):
    m = torch.zeros_like(weight)
    for g in gradients:
        m = momentum * m + g
        update = by_singular_values((g + momentum * m).reshape(len(g), -1), steps).view_as(g)
        weight = weight * len(weight) ** 0.5 / weight.norm() - rate * update
    return weight


def test_steps_are_those_of_the_naive_optimiser_and_of_torchs_adam():
    weight, gradients = matrix((4, 27), 0).view(4, 3, 3, 3), [matrix((4, 27), i).view(4, 3, 3, 3) for i in range(1, 6)]
    vector, slopes = matrix((4,), 7), [matrix((4,), i) for i in range(8, 13)]
    filters, bias = nn.Parameter(weight.clone()), nn.Parameter(vector.clone())
    reference = nn.Parameter(vector.clone())
    adam = torch.optim.Adam([reference], 0.1, betas=(0.85, 0.98))
    optimiser = Muon(
        [
            {"params": [filters], "lr": 0.2, "momentum": 0.6, "matrices": True, "iterations": 3},
            {"params": [bias], "lr": 0.1},
        ]
    )
    for gradient, slope in zip(gradients, slopes, strict=True):
        filters.grad, bias.grad, reference.grad = gradient.clone(), slope.clone(), slope.clone()
        optimiser.step()
        adam.step()
    assert torch.allclose(filters.detach(), naive(weight, gradients, 0.2, 0.6, 3), atol=1e-8)
    assert torch.allclose(bias.detach(), reference.detach(), atol=1e-10)


def test_a_parameter_without_gradient_stays():
    p = nn.Parameter(torch.ones(2, 2))
    Muon([{"params": [p], "lr": 0.2, "matrices": True}]).step()
    assert torch.equal(p, torch.ones(2, 2))


def test_matrices_heads_and_the_rest_have_their_own_rates():
    net = nn.Sequential()
    net.add_module("trunk", nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Linear(2, 2)))
    net.add_module("head", nn.Linear(2, 2))
    names = {id(p): name for name, p in net.named_parameters()}
    groups = {g["initial_lr"]: {names[id(p)] for p in g["params"]} for g in muon([net], 0.2).param_groups}
    assert groups == {
        0.2: {"trunk.0.weight", "trunk.2.weight"},
        0.2 * HEAD: {"head.weight", "head.bias"},
        0.2 * REST: {"trunk.0.bias", "trunk.1.weight", "trunk.1.bias", "trunk.2.bias"},
    }
    assert [g["initial_lr"] for g in muon([net], 0.2).param_groups if g["matrices"]] == [0.2]
