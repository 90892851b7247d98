"""Sprint: whitened inputs, an identity start, any size of picture, and what every network must do."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from certus.config import resolve
from certus.networks import network
from certus.networks.fused import fuse
from certus.networks.sprint import ScaledLinear, Sprint, Whitening, convolution
from certus.networks.stages import stages
from certus.training.build import build
from certus.training.planning import complete


def pictures(n=256, channels=3, size=12, seed=0):
    """With neighbouring pixels alike, as in photographs."""
    noise = torch.randn(n, channels, size + 2, size + 2, generator=torch.Generator().manual_seed(seed))
    return F.avg_pool2d(noise, 3, 1) * 3


@given(st.integers(0, 2**31), st.sampled_from([(1, 2, 1), (3, 2, 1), (3, 4, 2)]))
def test_whitened_patches_are_uncorrelated_with_variance_one(seed, form):
    channels, kernel, stride = form
    x = pictures(channels=channels, seed=seed)
    layer = Whitening(channels, kernel, stride)
    layer.prepare(x, epsilon=0.0)
    y = layer(x)
    half = y[:, : layer.outputs // 2]
    assert torch.allclose(y, torch.cat([half, -half], 1), atol=1e-5)
    rows = half.transpose(0, 1).flatten(1)
    assert torch.allclose(rows @ rows.T / rows.shape[1], torch.eye(len(rows)), atol=1e-3)


def test_a_direction_without_variance_does_not_explode():
    x = pictures(channels=1).repeat(1, 3, 1, 1)  # grey pictures with three channels
    layer = Whitening(3)
    layer.prepare(x)
    assert layer(x).abs().max() < 100


def test_convolutions_start_as_the_identity_on_the_channels_that_there_are():
    x = torch.randn(2, 4, 6, 6)
    assert torch.allclose(convolution(4, 8)(x)[:, :4], x, atol=1e-6)
    assert torch.allclose(convolution(4, 3)(x), x[:, :3], atol=1e-6)


def test_the_head_divides_by_the_number_of_its_inputs():
    head = ScaledLinear(5, 3)
    x = torch.randn(2, 5)
    assert torch.allclose(head(x), x @ head.weight.T / 5)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [8, 16, 28, 32, 48, 64, 96, 128, 224])
def test_pictures_of_any_size(channels, size):
    torch.manual_seed(0)
    net = network("sprint", (channels, size, size), classes=4, width=16, dropout=0.2)
    x = torch.randn(8, channels, size, size)
    net.prepare(x)
    net.train()(x)
    net.eval()
    assert net(x).shape == (8, 4)
    assert len(stages(net)) == 3  # before, between and after its two dropouts
    assert fuse(net).difference(x) < 1e-5


@pytest.mark.parametrize("size", [(32, 32), (64, 64), (128, 128)])
def test_larger_pictures_do_not_cost_much_more(size):
    """The work of a picture of 128 pixels is within four times that of 32: it is read in larger steps."""
    from torch.utils.flop_counter import FlopCounterMode

    def work(size):
        with FlopCounterMode(display=False) as counter:
            network("sprint", (3, *size), 10, 32, 0.0).eval()(torch.zeros(1, 3, *size))
        return counter.get_total_flops()

    assert work(size) < 4 * work((32, 32))


def test_a_run_whitens_by_its_own_training_images_and_repeats_to_the_bit():
    given = {"data": "digits", "network": "sprint", "width": 8, "optimiser": "muon", "steps": 3, "threads": 1}
    config = complete(resolve({**given, "labels": 10, "method": "mean-teacher"}))
    first, again = build(config), build(config)
    whitening = first.method.students[0].trunk[0]
    assert not torch.equal(whitening.weight, Whitening(1).weight)
    for run in (first, again):
        for number in range(3):
            run.advance(number)
    assert all(
        torch.equal(a, b)
        for a, b in zip(first.method.state.state_dict().values(), again.method.state.state_dict().values(), strict=True)
    )
    other = build(complete(resolve({**given, "labels": 10, "method": "mean-teacher", "seed": 1})))
    assert not torch.equal(other.method.students[0].trunk[0].weight, whitening.weight)


def test_the_whitening_is_not_learnt_but_saved():
    net = Sprint(1, 10, 8)
    assert "trunk.0.weight" in net.state_dict()
    assert "trunk.0.weight" not in dict(net.named_parameters())
