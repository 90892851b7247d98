"""A network that is cut at its dropouts is the same network, and each stage begins with one dropout site."""

import pytest
import torch
from builders import SHAPES, narrow
from torch import nn

from certus.networks import NETWORKS, network
from certus.networks.fused import fuse
from certus.networks.modes import dropout_only, has_dropout
from certus.networks.stages import stages

SITES = {"cnn13": 2, "cnn13-small": 2, "wrn-28": 12, "sprint": 2, "mlp": 2}
SITES |= {"efficientnet-lite0": 1, "mobilenet-v2": 1, "linear": 1}


def compose(parts, x):
    for part in parts:
        x = part(x)
    return x


def both(net, x):
    """The answers of the network and of its stages under the same dropout."""
    with torch.no_grad(), dropout_only(net):
        torch.manual_seed(5)
        whole = net(x)
        torch.manual_seed(5)
        return whole, compose(stages(net), x)


def fused(net):
    return fuse(net.eval())


@pytest.mark.parametrize("form", [nn.Module.eval, fused])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_stages_of_every_bundled_network_are_the_network(name, form):
    torch.manual_seed(0)
    net = form(network(name, SHAPES[name], 4, narrow(name, 4), 0.5))
    whole, composed = both(net, torch.randn(3, *SHAPES[name]))
    assert torch.equal(whole, composed)
    first, *later = stages(net)
    assert len(later) == SITES[name]
    assert not has_dropout(first)
    for stage in later:
        begin, *rest = stage
        assert has_dropout(begin)
        assert not any(has_dropout(module) for module in rest)


def test_a_plain_dropout_begins_a_stage_itself():
    for stage in stages(network("cnn13", (3, 16, 16), 4, 4, 0.5))[1:]:
        assert isinstance(stage[0], nn.Dropout)


def test_cutting_changes_no_mode_and_copies_no_module():
    net = network("mlp", (5,), 3, 4, 0.5).eval()
    parts = stages(net)
    assert not any(m.training for m in net.modules())
    assert {id(p) for part in parts for p in part.parameters()} == {id(p) for p in net.parameters()}
    with dropout_only(net):
        assert parts[1][0].training


def test_a_network_without_dropout_is_one_stage():
    assert len(stages(network("cnn13", (3, 16, 16), 4, 4, 0.0))) == 1
    net = nn.Linear(2, 2)
    assert stages(net) == [net]


def test_dropout_at_the_very_start_leaves_an_empty_first_stage():
    net = nn.Sequential(nn.Dropout(0.5), nn.Linear(2, 2))
    first, second = stages(net)
    x = torch.randn(4, 2)
    assert torch.equal(first(x), x)
    assert torch.equal(*both(net, x))
    assert list(second) == list(net)


def test_a_module_that_is_called_twice_is_in_the_stages_twice():
    drop, layer = nn.Dropout(0.5), nn.Linear(3, 3)
    net = nn.Sequential(layer, drop, layer, drop, layer)
    assert len(stages(net)) == 3
    assert torch.equal(*both(net, torch.randn(8, 3)))


class UserNetwork(nn.Module):
    """A user's network with the same attribute names as ours; `how` is its forward."""

    def __init__(self, how):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.Linear(3, 3))
        self.head = nn.Linear(3, 2)
        self.how = how

    def forward(self, x):
        return self.how(self, x)


NO_CHAINS = {
    "a step between": lambda net, x: net.head(net.trunk(x).relu()),
    "a way around": lambda net, x: net.head(net.trunk(x) + x),
    "an input used twice": lambda net, x: (net.trunk(x), net.head(x))[1],
    "a branch on values": lambda net, x: net.head(net.trunk(x) if x.sum() > 0 else x),
    "a scaled answer": lambda net, x: 2 * net.head(net.trunk(x)),
}


@pytest.mark.parametrize("how", NO_CHAINS.values(), ids=NO_CHAINS)
def test_a_network_that_is_no_chain_is_one_stage(how):
    net = UserNetwork(how)
    assert stages(net) == [net]


def test_a_users_chain_is_cut():
    net = UserNetwork(lambda net, x: net.head(net.trunk(x)))
    assert [len(stage) for stage in stages(net)] == [1, 3]
    assert torch.equal(*both(net, torch.randn(4, 3)))


def test_a_module_with_hooks_stays_whole():
    net = UserNetwork(lambda net, x: net.head(net.trunk(x)))
    net.trunk.register_forward_hook(lambda _, __, y: y + 1)
    assert [len(stage) for stage in stages(net)] == [0, 2]
    assert torch.equal(*both(net, torch.randn(4, 3)))
    net.register_forward_hook(lambda _, __, y: y + 1)
    assert stages(net) == [net]
