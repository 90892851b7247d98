"""The networks: shapes, known sizes, and the choice by shape and machine."""

from __future__ import annotations

import pytest
import torch
from builders import narrow, outspoken

from certus.errors import UsageError
from certus.networks import NETWORKS, network, suitable, suitable_width
from certus.networks.modes import has_dropout

SHAPES = {
    "cnn13": (3, 32, 32),
    "cnn13-small": (1, 8, 8),
    "wrn-28": (3, 16, 16),
    "sprint": (3, 16, 16),
    "efficientnet-lite0": (3, 8, 8),
    "mobilenet-v2": (1, 8, 8),
    "mlp": (5,),
    "linear": (5,),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_maps_inputs_to_logits_through_features_and_head(name: str) -> None:
    net = network(name, SHAPES[name], classes=7, width=narrow(name, 4), dropout=0.5).eval()
    x = torch.randn(3, *SHAPES[name])
    assert net(x).shape == (3, 7)
    assert torch.equal(net.head(net.features(x)), net(x))
    assert has_dropout(net)
    assert not has_dropout(network(name, SHAPES[name], 7, narrow(name, 4), 0.0))


@pytest.mark.parametrize("name", NETWORKS)
def test_every_parameter_is_used(name: str) -> None:
    torch.manual_seed(0)
    net = outspoken(network(name, SHAPES[name], classes=3, width=narrow(name, 8), dropout=0.1))
    net(torch.randn(4, *SHAPES[name])).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in net.parameters())


def test_cnn13_has_the_papers_layers() -> None:
    net = network("cnn13", (3, 32, 32), 10, 128, 0.5)
    convolutions = [m for m in net.modules() if isinstance(m, torch.nn.Conv2d)]
    assert [(c.out_channels, c.kernel_size[0], c.padding[0]) for c in convolutions] == [
        *[(128, 3, 1)] * 3,
        *[(256, 3, 1)] * 3,
        *[(512, 3, 0), (256, 1, 0), (128, 1, 0)],
    ]
    assert sum(p.numel() for p in net.parameters()) == 3_121_802


def test_wrn_28_2_has_its_known_size() -> None:
    net = network("wrn-28", (3, 32, 32), 10, 32, 0.0)
    assert sum(p.numel() for p in net.parameters()) == 1_467_610  # "1.5 M", as in the literature
    assert len([m for m in net.modules() if isinstance(m, torch.nn.Conv2d) and m.kernel_size == (3, 3)]) == 25


def test_auto_fits_shape_and_machine() -> None:
    assert suitable((4,)) == "mlp"
    assert suitable((1, 8, 8)) == "cnn13-small"
    assert suitable((3, 32, 32)) == "cnn13"
    assert (suitable_width("cnn13", True), suitable_width("cnn13", False)) == (128, 16)


def test_a_network_that_does_not_fit_is_refused() -> None:
    with pytest.raises(UsageError, match="too small for network cnn13: use `network` cnn13-small"):
        network("cnn13", (1, 8, 8), 10, 8, 0.5)
    with pytest.raises(UsageError, match="use `network` mlp"):
        network("wrn-28", (3,), 10, 8, 0.5)
    with pytest.raises(UsageError, match="Did you mean 'cnn13'"):
        network("cnn31", (3, 32, 32), 10, 8, 0.5)
