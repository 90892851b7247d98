"""Answers in parts: how many images at a time, and that it does not matter for clean answers."""

import pytest
import torch
from builders import small_network
from hypothesis import given
from hypothesis import strategies as st

from certus.networks import network
from certus.networks.pretrained import readable
from certus.training.evaluation import BATCH, PIXELS, at_a_time, probabilities


@given(st.integers(1, 4000), st.integers(1, 4000))
def test_large_images_are_fewer_at_a_time(height, width):
    count = at_a_time(torch.nn.Identity(), torch.empty(0, 3, height, width))
    assert 1 <= count <= BATCH
    assert count == 1 or count * height * width <= PIXELS
    assert count == BATCH or (count + 1) * height * width > PIXELS


def test_vectors_have_the_whole_batch():
    assert at_a_time(torch.nn.Identity(), torch.empty(0, 7)) == BATCH


def test_images_count_as_the_network_enlarges_them(monkeypatch):
    monkeypatch.setattr("certus.networks.pretrained.SMALLEST", 160)
    net = network("efficientnet-lite0", (3, 32, 32), 10, 32, 0.2)
    net.enlarge(readable(32))
    assert at_a_time(net, torch.empty(0, 3, 32, 32)) == PIXELS // 160**2 < BATCH


@pytest.mark.parametrize("batch", [1, 7, 24])
def test_parts_give_the_answers_of_the_whole(batch):
    net = small_network("cnn13", 0)
    images = torch.rand(24, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    whole, parts = (probabilities(net, lambda x: x, images, batch=b) for b in (24, batch))
    assert torch.allclose(whole, parts, atol=1e-5)
