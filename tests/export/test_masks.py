"""Masks from a seed: the same everywhere, and as good as drawn."""

from __future__ import annotations

import math

import torch
from builders import normal, small_cnn
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from certus.export.masks import SITE, A, B, Draws, MaskedDropout, P, mixed, with_masks


def naive(seed: int, site: int, count: int) -> list[int]:
    """The formula in whole numbers without bounds."""
    key = pow(seed % P * SITE + 1 + 7919 * site, 5, P)
    return [pow(pow(i * A + key, 5, P) * B + key * SITE, 5, P) for i in range(count)]


@given(st.integers(0, 2**40), st.integers(0, 50))
def test_the_numbers_are_those_of_the_formula(seed: int, site: int) -> None:
    assert mixed(torch.tensor(seed), site, (2, 3, 4)).flatten().tolist() == naive(seed, site, 24)


def test_products_fit_into_64_bits_for_many_values() -> None:
    most = 2**31 - 2
    assert max(most * A, most * B, most * SITE) + P < 2**63


def test_the_numbers_are_uniform_and_independent_of_their_neighbours_sites_and_seeds() -> None:
    n = 200_000
    u = [mixed(torch.tensor(seed), site, (n,)).double() / P for seed, site in ((0, 0), (0, 1), (1, 0), (1, 1))]
    for x in u:
        counts = (x * 50).long().bincount(minlength=50).double()
        chi2 = ((counts - n / 50).square() / (n / 50)).sum()
        assert chi2 < 49 + 5 * math.sqrt(2 * 49)
    pairs = [(u[0], x) for x in u[1:]] + [(u[0][:-lag], u[0][lag:]) for lag in (1, 2, 64, 1024)]
    for a, b in pairs:
        r = torch.corrcoef(torch.stack([a, b]))[0, 1]
        assert abs(r) < 5 / math.sqrt(n)


def test_a_dropout_keeps_the_wanted_share_and_the_mean() -> None:
    draws = Draws()
    dropout = MaskedDropout(0.3, draws)
    x = torch.ones(2, 50_000)
    assert torch.equal(dropout(x), x)  # nothing is drawn
    draws.seed, draws.count = torch.tensor(5), 4
    y = dropout(x.repeat(4, 1)).unflatten(0, (4, 2))
    assert abs(float((y > 0).double().mean()) - 0.7) < 5 * math.sqrt(0.21 / 200_000)
    assert torch.equal(y[:, 0], y[:, 1])  # the same masks for each picture
    assert not torch.equal(y[0], y[1])
    for t in range(4):
        draws.only = t
        assert torch.equal(dropout(x), y[t])


def test_every_dropout_of_a_network_gets_its_own_site() -> None:
    draws = Draws()
    net = with_masks(nn.Sequential(small_cnn(), nn.Dropout(0.1)), draws)
    sites = [m.site for m in net.modules() if isinstance(m, MaskedDropout)]
    assert sites == [0, 1, 2]
    assert not any(isinstance(m, nn.Dropout) for m in net.modules())
    assert torch.allclose(net.eval()(normal(2, 1, 8, 8)), net(normal(2, 1, 8, 8)))
