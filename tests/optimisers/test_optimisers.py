"""Optimisers: their update against a naive reference, and state that resumes to the bit."""

import pytest
import torch
from torch import nn

from certus.optimisers import muon, restore, sgd, state_tensors
from certus.training import checkpoint

OPTIMISERS = {
    "sgd": lambda net: sgd(net.parameters(), learning_rate=0.1, momentum=0.9, weight_decay=2e-4),
    "plain": lambda net: sgd(net.parameters(), learning_rate=0.1, momentum=0.0, weight_decay=0.0),
    "muon": lambda net: muon([net], learning_rate=0.1),
    "adam": lambda net: torch.optim.Adam(net.parameters(), 0.1),
}


def network():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.Flatten(), nn.Linear(48, 2))
    return net.to(memory_format=torch.channels_last)


def advance(net, optimiser, steps):
    for seed in steps:
        x = torch.randn(5, 2, 4, 4, generator=torch.Generator().manual_seed(seed))
        optimiser.zero_grad()
        net(x).square().mean().backward()
        optimiser.step()


@pytest.mark.parametrize("kind", OPTIMISERS)
@pytest.mark.parametrize("done", [0, 3])
def test_an_optimiser_that_was_saved_goes_on_bit_for_bit(tmp_path, kind, done):
    net = network()
    optimiser = OPTIMISERS[kind](net)
    advance(net, optimiser, range(done))
    checkpoint.write(tmp_path / "net", done, net.state_dict(), {})
    checkpoint.write(tmp_path / "optimiser", done, state_tensors(optimiser), {})

    again = network()
    again.load_state_dict(checkpoint.read(tmp_path / "net")[0])
    resumed = OPTIMISERS[kind](again)
    restore(resumed, checkpoint.read(tmp_path / "optimiser")[0])

    advance(net, optimiser, range(done, 8))
    advance(again, resumed, range(done, 8))
    assert all(torch.equal(p, q) for p, q in zip(net.parameters(), again.parameters(), strict=True))
    assert state_tensors(optimiser).keys() == state_tensors(resumed).keys()
    assert bool(state_tensors(optimiser)) == (kind != "plain")
    for name, tensor in state_tensors(optimiser).items():
        assert torch.equal(tensor, state_tensors(resumed)[name]), name


def naive(weight, gradients, rate, momentum, decay):
    """SGD with Nesterov momentum, number by number."""
    velocity = None
    for gradient in gradients:
        g = gradient + decay * weight
        velocity = g if velocity is None else momentum * velocity + g
        weight = weight - rate * (g + momentum * velocity)
    return weight


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_sgd_is_nesterovs_with_weight_decay(momentum):
    parameter = nn.Parameter(torch.tensor([1.0, -2.0], dtype=torch.float64))
    gradients = torch.randn(5, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = naive(parameter.detach().clone(), gradients, 0.1, momentum, 0.01)
    optimiser = sgd([parameter], 0.1, momentum, 0.01)
    for gradient in gradients:
        parameter.grad = gradient.clone()
        optimiser.step()
    assert torch.allclose(parameter.detach(), expected, rtol=1e-12)
