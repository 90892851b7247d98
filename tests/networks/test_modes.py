"""Ways to run a network: which randomness is on, and that each restores the former state."""

from copy import deepcopy

import pytest
import torch
from builders import normal, same_state, small_cnn
from torch import nn

from certus.networks.modes import dropout_only, evaluating, frozen_statistics, has_dropout

MODES = [evaluating, dropout_only, frozen_statistics]


@pytest.fixture
def net():
    net = small_cnn()
    for _ in range(3):  # running statistics that are not those of any batch
        net(images(16, seed=9))
    return net


def images(n=8, seed=0):
    return normal(n, 1, 8, 8, seed=seed)


def modes_of(net):
    return [(m.training, getattr(m, "track_running_stats", None)) for m in net.modules()]


def mixed(net):
    """A network whose modules are not all in one mode."""
    net.eval()
    net.trunk[0][1].train()
    net.trunk[4].train()
    return net


@pytest.mark.parametrize("start", [nn.Module.train, nn.Module.eval, mixed])
@pytest.mark.parametrize("mode", MODES)
def test_no_statistic_changes_and_every_module_gets_its_mode_back(net, mode, start):
    start(net)
    modes, state = modes_of(net), deepcopy(net.state_dict())
    with mode(net):
        for seed in range(3):
            net(images(seed=seed))
    assert modes_of(net) == modes
    assert same_state(net, state)


@pytest.mark.parametrize("start", [nn.Module.train, mixed])
@pytest.mark.parametrize("mode", MODES)
def test_modes_come_back_after_an_exception(net, mode, start):
    start(net)
    modes = modes_of(net)
    with pytest.raises(RuntimeError, match="channels"), mode(net):
        net(torch.zeros(2, 5, 8, 8))
    assert modes_of(net) == modes


def test_statistics_do_change_in_training(net):
    state = deepcopy(net.state_dict())
    net(images())
    assert not torch.equal(net.trunk[0][1].running_mean, state["trunk.0.1.running_mean"])
    assert net.trunk[0][1].num_batches_tracked == state["trunk.0.1.num_batches_tracked"] + 1


def test_evaluating_is_evaluation_mode(net):
    with evaluating(net):
        inside = net(images())
    assert torch.equal(inside, net.eval()(images()))


def test_dropout_only_switches_on_dropout_and_nothing_else(net):
    with dropout_only(net):
        on = {type(m) for m in net.modules() if m.training}
        off = {type(m) for m in net.modules() if not m.training}
    assert on == {nn.Dropout}
    assert nn.BatchNorm2d in off
    assert nn.Dropout not in off


def test_dropout_only_draws_differ(net):
    net.eval()
    with dropout_only(net):
        one, other = net(images()), net(images())
    assert (one != other).any(1).all()


def test_dropout_only_uses_running_statistics(net):
    for module in net.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    with dropout_only(net):
        inside = net(images())
    assert torch.equal(inside, net.eval()(images()))


@pytest.mark.parametrize("kind", [nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout])
def test_dropout_of_every_kind_is_switched_on(kind):
    net = nn.Sequential(nn.Linear(4, 4), kind(0.5)).eval()
    with dropout_only(net):
        assert net[1].training
        assert not net[0].training


def test_frozen_statistics_answers_as_in_training(net):
    torch.manual_seed(1)
    with frozen_statistics(net):
        inside = net(images())
    torch.manual_seed(1)
    assert torch.equal(inside, net(images()))
    assert not torch.allclose(inside, net.eval()(images()))


def test_has_dropout_where_draws_can_differ():
    assert has_dropout(nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Dropout2d(0.1))))
    assert not has_dropout(nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.0)))
    assert not has_dropout(nn.Linear(2, 2))
