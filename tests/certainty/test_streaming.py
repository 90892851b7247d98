"""Streaming moments against the metrics of all draws at once."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from certus.certainty.metrics import METRICS
from certus.certainty.streaming import Moments


@st.composite
def draws(draw):
    """Probabilities (T, B, C), some of them exactly 0 and 1."""
    shape = draw(st.tuples(st.integers(1, 8), st.integers(1, 5), st.integers(2, 5)))
    logits = draw(hnp.arrays(np.float64, shape, elements=st.floats(-20, 20) | st.sampled_from([0.0, 1e4])))
    return torch.from_numpy(logits).softmax(-1).to(draw(st.sampled_from([torch.float32, torch.float64])))


def gathered(p):
    moments = Moments(*p.shape[1:])
    for draw in p:
        moments.add(draw)
    return moments


@pytest.mark.parametrize("name", METRICS)
@given(p=draws())
def test_each_metric_equals_that_of_the_stacked_draws(name, p):
    value = getattr(gathered(p), name)
    assert value.dtype == p.dtype
    assert value.tolist() == pytest.approx(METRICS[name](p).tolist(), abs=1e-6)


@given(draws())
def test_mean_is_the_mean(p):
    assert torch.allclose(gathered(p).mean, p.mean(0), atol=1e-6)


@pytest.mark.parametrize("name", ["pv", "ev", "pe", "mi"])
def test_nothing_cancels_where_the_network_is_certain(name):
    g = torch.Generator().manual_seed(0)
    rest = torch.rand(40, 64, 3, generator=g, dtype=torch.float64) * 1e-6
    p = torch.cat([1 - rest.sum(-1, keepdim=True), rest], -1).float()  # (T, B, C), p_0 between 1 − 3e-6 and 1
    exact = METRICS[name](p.double())
    assert (getattr(gathered(p), name) / exact - 1).abs().max() < 1e-6


def test_values_can_be_read_between_draws():
    p = torch.rand(6, 4, 3).softmax(-1)
    moments = Moments(4, 3)
    for t, draw in enumerate(p, 1):
        moments.add(draw)
        assert moments.draws == t
        for name, metric in METRICS.items():
            assert torch.allclose(getattr(moments, name), metric(p[:t]), atol=1e-6)


def test_draws_are_neither_kept_nor_changed():
    moments, p = Moments(2, 3), torch.rand(2, 3).softmax(-1)
    before = p.clone()
    moments.add(p)
    size = sum(v.nbytes for v in vars(moments).values() if isinstance(v, torch.Tensor))
    for _ in range(5):
        moments.add(p)
    assert torch.equal(p, before)
    assert size == sum(v.nbytes for v in vars(moments).values() if isinstance(v, torch.Tensor))
    assert not [v for v in vars(moments).values() if isinstance(v, (list, tuple, dict))]


def test_a_wrong_shape_and_reading_before_the_first_draw_are_refused():
    with pytest.raises(ValueError, match=r"has shape \(3,\)"):
        Moments(2, 3).add(torch.zeros(3))
    for name in (*METRICS, "mean"):
        with pytest.raises(ValueError, match="no draw yet"):
            getattr(Moments(2, 3), name)
