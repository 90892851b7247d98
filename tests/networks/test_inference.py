"""The fused copy that is kept beside a network: it follows the weights, and is not used where it would be wrong."""

from __future__ import annotations

import logging
from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn

from certus.networks import network
from certus.networks.inference import quick_stages

IMAGES = torch.randn(7, 1, 8, 8, generator=torch.Generator().manual_seed(0))


def net() -> nn.Module:
    torch.manual_seed(0)
    made = network("cnn13-small", (1, 8, 8), 3, 4, 0.5).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return made.eval()


@torch.no_grad()
def answer(model: nn.Module) -> Tensor:
    y = IMAGES
    for stage in quick_stages(model, IMAGES):
        y = stage.eval()(y)
    return y.softmax(1)


@torch.no_grad()
def change(model: nn.Module) -> None:
    for p in model.parameters():
        p.add_(0.05 * torch.randn_like(p))
    for name, b in model.named_buffers():
        if "running" in name:
            b.mul_(1.3)


def test_it_follows_weights_statistics_and_a_loaded_state() -> None:
    model, other = net(), net()
    change(other)
    for action in (lambda: None, lambda: change(model), lambda: model.load_state_dict(other.state_dict())):
        action()
        assert torch.allclose(answer(model), model(IMAGES).softmax(1), atol=1e-4)


def test_it_is_made_once_and_is_no_part_of_the_network() -> None:
    model = net()
    before = set(model.state_dict())
    first = quick_stages(model, IMAGES)
    assert quick_stages(model, IMAGES) is first
    assert set(model.state_dict()) == before
    assert len(list(model.modules())) == len(list(net().modules()))


def test_a_copy_of_the_network_has_its_own_fused_copy() -> None:
    model = net()
    answer(model)
    copy = deepcopy(model)
    change(copy)
    assert torch.allclose(answer(copy), copy(IMAGES).softmax(1), atol=1e-4)
    assert torch.allclose(answer(model), model(IMAGES).softmax(1), atol=1e-4)


class Hooked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inside = net()
        self.inside.register_forward_hook(lambda _, __, result: 2 * result)

    def forward(self, x: Tensor) -> Tensor:
        return self.inside(x)


def test_a_network_without_a_fused_copy_answers_itself_and_a_notice_says_so(caplog: pytest.LogCaptureFixture) -> None:
    model = Hooked().eval()
    with caplog.at_level(logging.WARNING, "certus"):
        answered = answer(model)
        answer(model)
    assert torch.allclose(answered, model(IMAGES).softmax(1), atol=1e-6)
    assert len(caplog.records) == 1
    assert "without a fused copy" in caplog.text
