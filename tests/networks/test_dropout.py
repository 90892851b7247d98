"""Quick dropout has the distribution of dropout; ordered dropout has torch's masks in every memory format."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from certus.networks.dropout import OrderedDropout, QuickDropout
from certus.networks.modes import dropout_only, has_dropout

N = 1 << 18


def mask(p, shape=(N,), seed=0):
    torch.manual_seed(seed)
    return QuickDropout(p)(torch.ones(shape))


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.9])
def test_quick_dropout_drops_a_share_p_and_keeps_the_mean(p):
    values = mask(p)
    dropped = (values == 0).double().mean().item()
    assert dropped == pytest.approx(p, abs=5 * math.sqrt(p * (1 - p) / N))
    assert values.unique().tolist() == pytest.approx([0, 1 / (1 - p)], rel=2e-4)


@pytest.mark.parametrize("lag", [1, 2, 3, 4, 7, 64])
def test_neighbours_are_dropped_independently(lag):
    dropped = (mask(0.3) == 0).double()
    together = (dropped[lag:] * dropped[:-lag]).mean().item()
    assert together == pytest.approx(0.09, abs=5 * math.sqrt(0.09 * 0.91 / N) * 2)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.sampled_from([0.2, 0.5]), st.integers(0, 9))
def test_every_value_is_dropped_or_scaled_whatever_the_shape(shape, p, seed):
    torch.manual_seed(seed)
    x = torch.rand(shape, dtype=torch.float64) + 1
    y = QuickDropout(p)(x)
    scale = 65536 / (65536 - round(p * 65536))
    assert y.shape == x.shape
    assert torch.allclose(torch.where(y == 0, 0, x * scale), y)


def test_masks_follow_the_global_seed():
    assert torch.equal(mask(0.5), mask(0.5))
    assert not torch.equal(mask(0.5), mask(0.5, seed=1))


def test_an_images_mask_is_the_same_in_both_memory_formats_and_the_format_stays():
    x = torch.randn(3, 4, 5, 6)
    torch.manual_seed(0)
    rows = QuickDropout(0.5)(x)
    torch.manual_seed(0)
    last = QuickDropout(0.5)(x.contiguous(memory_format=torch.channels_last))
    assert torch.equal(rows, last)
    assert rows.is_contiguous()
    assert last.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("kind", [QuickDropout, OrderedDropout])
@pytest.mark.parametrize("p", [0.0, 1.0])
def test_a_probability_of_0_or_1_drops_nothing_or_everything(kind, p):
    x = torch.ones(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    assert torch.equal(kind(p)(x), x * (1 - p))


@pytest.mark.parametrize("kind", [QuickDropout, OrderedDropout])
def test_off_in_evaluation_and_on_under_dropout_only(kind):
    net = nn.Sequential(kind(0.5)).eval()
    x = torch.ones(4, 3, 8, 8).contiguous(memory_format=torch.channels_last)
    assert torch.equal(net(x), x)
    assert has_dropout(net)
    with dropout_only(net):
        assert (net(x) == 0).any()


@pytest.mark.parametrize("kind", [QuickDropout, OrderedDropout])
def test_in_place_is_in_place_and_the_gradient_passes_where_the_value_does(kind):
    x = torch.ones(4, 3, 8, 8).contiguous(memory_format=torch.channels_last)
    assert kind(0.5, inplace=True)(x) is x
    assert (x == 0).any()
    leaf = torch.ones_like(x).requires_grad_()
    y = kind(0.5)(leaf)
    y.sum().backward()
    assert torch.equal(leaf.grad, y)


@pytest.mark.parametrize("p", [0.2, 0.5])
def test_ordered_dropout_draws_the_masks_that_torch_draws_in_its_default_format(p):
    x = torch.randn(3, 4, 5, 6)
    torch.manual_seed(0)
    expected = nn.Dropout(p)(x)
    torch.manual_seed(0)
    assert torch.equal(OrderedDropout(p)(x.contiguous(memory_format=torch.channels_last)), expected)
