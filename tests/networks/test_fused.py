"""The fused copy answers like the network, follows its weights, and changes neither it nor its checkpoints."""

from copy import deepcopy

import pytest
import torch
from builders import SHAPES, narrow, normal, outspoken
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from certus.networks import NETWORKS, network
from certus.networks.dropout import QuickDropout
from certus.networks.folding import Affine
from certus.networks.fused import fuse, obstacle
from certus.networks.modes import dropout_only, evaluating

NORMS = (nn.BatchNorm1d, nn.BatchNorm2d)


def randomise(net, seed=0):
    """Random weights and statistics, unlike those of any initialisation."""
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for module in net.modules():
            if isinstance(module, NORMS):
                module.running_mean.normal_(0, 0.3, generator=g)
                module.running_var.uniform_(0.3, 2, generator=g)
                if module.affine:
                    module.weight.uniform_(0.5, 1.5, generator=g)
                    module.bias.normal_(0, 0.3, generator=g)
            elif isinstance(module, (nn.Conv2d, nn.Linear)):
                module.weight.mul_(torch.rand(module.weight.shape, generator=g) + 0.5)
    return net


def random_network(name):
    torch.manual_seed(0)
    return unit_logits(randomise(outspoken(network(name, SHAPES[name], 5, narrow(name, 8), 0.4))).eval(), images(name))


@torch.no_grad()
def unit_logits(net, x):
    """Scale the logits to size 1: answers of exactly 0 or 1 would hide a difference."""
    net.head.weight.div_(net(x).std())
    return net


def images(name, n=6):
    return normal(n, *SHAPES[name], seed=3)


@torch.no_grad()
def answers(net, x):
    with evaluating(net):
        return net(x).softmax(1)


@torch.no_grad()
def drawn(net, x, seed=4):
    torch.manual_seed(seed)
    with dropout_only(net):
        return torch.stack([net(x).softmax(1) for _ in range(3)])


def close(one, other):
    return (one - other).abs().max() < 1e-4


@pytest.mark.parametrize("name", NETWORKS)
def test_the_copy_equals_the_network_before_and_after_its_weights_change(name):
    net, x = random_network(name), images(name)
    fused = fuse(net)
    before = answers(net, x)
    assert close(answers(fused, x), before)
    assert fused.difference(x) < 1e-4
    unit_logits(randomise(net, seed=1), x)
    fused.refresh()
    assert not close(answers(net, x), before)
    assert close(answers(fused, x), answers(net, x))


@pytest.mark.parametrize("name", ["cnn13", "wrn-28"])
def test_without_refresh_the_copy_keeps_the_old_weights(name):
    net, x = random_network(name), images(name)
    fused = fuse(net)
    randomise(net, seed=1)
    assert fused.difference(x) > 1e-3


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=["rows", "channels_last"])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_copys_draws_are_the_networks_under_the_same_seed(name, layout):
    net, x = random_network(name), images(name)
    if x.ndim == 4:
        net.to(memory_format=layout)
    own, other = drawn(net, x), drawn(net, x, seed=5)
    assert close(drawn(fuse(net), x), own)
    assert not close(own, other)


@pytest.mark.parametrize("name", NETWORKS)
def test_quick_draws_differ_but_clean_answers_are_the_same(name):
    net, x = random_network(name), images(name)
    fused = fuse(net, quick=True)
    assert {type(m) for m in fused.modules() if isinstance(m, nn.Dropout)} == {QuickDropout}
    assert close(answers(fused, x), answers(net, x))
    assert not close(drawn(fused, x), drawn(net, x))
    assert torch.equal(drawn(fused, x), drawn(fused, x))


@pytest.mark.parametrize("name", NETWORKS)
def test_the_network_is_not_changed(name):
    net, x = random_network(name), images(name)
    net.train()
    modules, state, modes = list(net.modules()), deepcopy(net.state_dict()), [m.training for m in net.modules()]
    addresses = [t.data_ptr() for t in (*net.parameters(), *net.buffers())]
    fused = fuse(net)
    fused.train()
    assert not any(m.training for m in fused.modules())
    fused(x)
    drawn(fused, x)
    fused.refresh()
    assert list(net.modules()) == modules
    assert [m.training for m in net.modules()] == modes
    assert all(p.requires_grad for p in net.parameters())
    assert [t.data_ptr() for t in (*net.parameters(), *net.buffers())] == addresses
    assert all(torch.equal(state[key], tensor) for key, tensor in net.state_dict().items())


@pytest.mark.parametrize("name", NETWORKS)
def test_the_copy_has_no_state_and_no_parameters(name):
    class Teacher(nn.Module):
        def __init__(self, net):
            super().__init__()
            self.net = net
            self.fused = fuse(net)

    net = random_network(name)
    teacher = Teacher(net)
    assert not teacher.fused.state_dict()
    assert not list(teacher.fused.parameters())
    assert teacher.state_dict().keys() == {f"net.{key}" for key in net.state_dict()}
    teacher.load_state_dict(teacher.state_dict(), strict=True)
    assert not teacher.fused(images(name)).requires_grad


def test_no_batch_norm_is_left_and_only_one_without_a_convolution_before_it_becomes_affine():
    for name, affine in (("cnn13", 0), ("wrn-28", 13)):  # 12 blocks begin with one, and there is one at the end
        fused = fuse(random_network(name))
        kinds = [type(m) for m in fused.modules()]
        assert not set(kinds) & set(NORMS)
        assert kinds.count(Affine) == affine


def test_refresh_writes_in_place():
    net = random_network("wrn-28")
    fused = fuse(net)
    before = {key: (t, t.data_ptr()) for key, t in fused.named_buffers()}
    randomise(net, seed=1)
    fused.refresh()
    after = dict(fused.named_buffers())
    assert after.keys() == before.keys()
    assert all(after[key].data_ptr() == address for key, (_, address) in before.items())


def test_refresh_follows_tensors_that_were_replaced():
    net, x = random_network("cnn13"), images("cnn13")
    fused = fuse(net)
    head = nn.Linear(8, 5)
    net.head.weight = head.weight
    net.trunk[0][1].running_mean = torch.ones(8)
    fused.refresh()
    assert fused.difference(x) < 1e-4


class Odd(nn.Module):
    """An unusual network: norms without weights, after a bias, after a linear layer, at the start, used twice."""

    def __init__(self):
        super().__init__()
        again = nn.Sequential(nn.Conv2d(6, 6, 1, bias=False), nn.BatchNorm2d(6), nn.LeakyReLU(0.2))
        self.start = nn.BatchNorm2d(3)
        self.body = nn.Sequential(
            *(nn.Conv2d(3, 6, 3, groups=3, bias=True), nn.BatchNorm2d(6, affine=False), nn.ReLU()),
            *(again, nn.Dropout(0.3), again, nn.ReLU(), nn.BatchNorm2d(6), nn.Flatten(), nn.Dropout(0.2)),
            *(nn.Linear(96, 7), nn.BatchNorm1d(7, eps=0.1), nn.ReLU(), nn.Linear(7, 4)),
        )

    def forward(self, x):
        y = self.start(x)
        return self.body(y) + self.body[-1](x.new_ones(1, 7))  # this layer is used twice


def test_an_unusual_network():
    torch.manual_seed(0)
    net, x = randomise(Odd()).eval(), torch.randn(5, 3, 6, 6)
    fused = fuse(net)
    randomise(net, seed=1)
    fused.refresh()
    assert fused.difference(x) < 1e-4
    assert close(drawn(fused, x), drawn(net, x))


def test_a_batch_norm_without_running_statistics_stays_as_it_is():
    net = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4, track_running_stats=False), nn.Flatten()).eval()
    x = torch.randn(5, 3, 2, 2)
    assert fuse(net).difference(x) < 1e-4


def test_an_activation_whose_input_is_used_elsewhere_does_not_work_in_place():
    class Around(nn.Module):
        def __init__(self):
            super().__init__()
            self.act = nn.ReLU()
            self.through = nn.Sequential(nn.Flatten(), nn.Linear(4, 4), self.act)

        def forward(self, x):
            return self.through(self.act(x)) + x

    assert fuse(Around()).difference(torch.randn(5, 4)) < 1e-6


def test_a_convolution_before_two_norms_is_not_folded():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            shared = nn.Conv2d(3, 4, 1)
            self.one = nn.Sequential(shared, nn.BatchNorm2d(4), nn.Flatten())
            self.two = nn.Sequential(shared, nn.BatchNorm2d(4), nn.Flatten())

        def forward(self, x):
            return self.one(x) - self.two(x)

    fused = fuse(randomise(Two()).eval())
    assert fused.difference(torch.randn(5, 3, 2, 2)) < 1e-4
    assert not list(fused.parameters())


def test_a_network_that_cannot_be_fused_gives_a_reason():
    hooked = random_network("mlp")
    hooked.head.register_forward_hook(lambda *_: None)
    normed = nn.Sequential(weight_norm(nn.Linear(2, 2)))
    stuck = nn.Linear(2, 2)
    stuck.log = (line for line in "")
    for net, why in (
        (hooked, r"head \(Linear\) has hooks"),
        (normed, "cannot follow"),
        (nn.Sequential(nn.LSTM(2, 2)), r"0 \(LSTM\)"),
        (stuck, "cannot be copied"),
    ):
        assert fuse(net) is None
        with pytest.raises(AssertionError, match=why):
            raise AssertionError(obstacle(net))
    assert obstacle(random_network("mlp")) is None


def test_difference_finds_a_network_whose_forward_skips_a_module():
    class Skipping(nn.Module):
        def __init__(self):
            super().__init__()
            self.seq = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))

        def forward(self, x):
            return self.seq[0](x)

    assert fuse(randomise(Skipping()).eval()).difference(torch.randn(8, 3)) > 1e-2
