"""MobileNetV2 and EfficientNet-Lite0, layer by layer against a naive reading of their papers' tables."""

from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from certus.networks import pretrained, weights
from certus.networks.fused import fuse
from certus.networks.mobile import EFFICIENTNET_LITE0, MOBILENET_V2, InvertedResidual, Mobile
from certus.networks.stages import stages

TABLES = {  # wider, channels, blocks, stride, kernel; as printed
    "mobilenet-v2": [
        *[(1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 32, 3, 2, 3), (6, 64, 4, 2, 3)],
        *[(6, 96, 3, 1, 3), (6, 160, 3, 2, 3), (6, 320, 1, 1, 3)],
    ],
    "efficientnet-lite0": [
        *[(1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3)],
        *[(6, 112, 3, 1, 5), (6, 192, 4, 2, 5), (6, 320, 1, 1, 3)],
    ],
}
PLANS = {"mobilenet-v2": MOBILENET_V2, "efficientnet-lite0": EFFICIENTNET_LITE0}


def same(x, kernel, stride):
    """TensorFlow's SAME: ⌈side / stride⌉ outputs, the odd pixel at the end."""
    for side in (2, 3):
        out = -(-x.shape[side] // stride)
        need = max((out - 1) * stride + kernel - x.shape[side], 0)
        pads = [0, 0, 0, 0]
        at = 0 if side == 3 else 2
        pads[at], pads[at + 1] = need // 2, need - need // 2
        x = F.pad(x, pads)
    return x


class Naive:
    """Takes the tensors of a state dict in their order, one layer after the other."""

    def __init__(self, name, tensors):
        self.weights, self.table = iter(tensors), TABLES[name]
        self.lite = name != "mobilenet-v2"

    def layer(self, x, kernel, stride, groups=1, active=True):
        weight, scale, shift, mean, var, _ = (next(self.weights) for _ in range(6))
        if self.lite:
            x = F.conv2d(same(x, kernel, stride), weight, stride=stride, groups=groups)
        else:
            x = F.conv2d(x, weight, stride=stride, padding=(kernel - 1) // 2, groups=groups)
        x = F.batch_norm(x, mean, var, scale, shift, eps=1e-3 if self.lite else 1e-5)
        return x.clamp(0, 6) if active else x

    def blocks(self, x):
        """The input and the output of every block, then the logits."""
        x = self.layer(x, 3, 2)
        for wider, channels, count, stride, kernel in self.table:
            for i in range(count):
                before, inner = x, x.shape[1] * wider
                if wider > 1:
                    x = self.layer(x, 1, 1)
                x = self.layer(x, kernel, stride if i == 0 else 1, groups=inner)
                x = self.layer(x, 1, 1, active=False)
                if (stride == 1 or i > 0) and before.shape[1] == channels:
                    x = x + before
                yield before, x
        x = self.layer(x, 1, 1).mean((2, 3))
        yield None, x @ next(self.weights).T + next(self.weights)


def published(net):
    """Weights with batch norms in which every layer matters, in the order of the authors' files."""
    generator = torch.Generator().manual_seed(3)
    *convolutions, head, bias = weights.learnt(net).values()
    found = []
    for weight in convolutions[::2]:
        noise = [0.3 * torch.randn(len(weight), generator=generator) for _ in range(3)]
        variance = 0.5 + torch.rand(len(weight), generator=generator)
        found += [weight.clone(), 1 + noise[0], noise[1], noise[2], variance, torch.tensor(7)]
    return [*found, head.clone(), bias.clone()]


def lively(net):
    tensors = {str(i): t for i, t in enumerate(published(net))}
    net.load_state_dict(weights.named_like(net, tensors, Path()), strict=False)
    return net.eval()


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("size", [64, 97])
def test_layer_by_layer_as_a_naive_reading_of_the_table(name, size):
    torch.manual_seed(0)
    net = Mobile(PLANS[name], 3, 7)
    tensors = published(net)
    net = lively(net)
    net.trunk[0].size = size
    x = torch.randn(2, 3, size, size)
    seen = []
    for module in net.modules():
        if isinstance(module, InvertedResidual):
            module.register_forward_hook(lambda _, inputs, output: seen.append((inputs[0], output)))
    with torch.no_grad():
        logits = net(x)
        *expected, (_, last) = Naive(name, tensors).blocks(x)
    assert len(seen) == len(expected) == (17 if name == "mobilenet-v2" else 16)
    for own, naive in zip(seen, expected, strict=True):
        for a, b in zip(own, naive, strict=True):
            assert a.shape == b.shape
            assert torch.allclose(a, b, atol=1e-4 * b.abs().max())
    assert torch.allclose(logits, last, atol=1e-4 * last.abs().max())


@pytest.mark.parametrize(("name", "parameters"), [("mobilenet-v2", 3_504_872), ("efficientnet-lite0", 4_652_008)])
def test_has_its_known_size(name, parameters):
    net = Mobile(PLANS[name], 3, 1000)
    norms = sum(m.out_channels for m in net.modules() if isinstance(m, torch.nn.Conv2d))
    assert sum(p.numel() for p in net.parameters()) + norms == parameters  # a norm has two numbers, a bias one


@pytest.mark.parametrize("channels", [1, 3])
def test_sees_pixels_as_its_weights_know_them(channels):
    """Whatever the data set's normalisation, the first convolution sees (pixels − centre) / spread."""
    pixels = torch.randint(0, 256, (4, channels, 128, 128)).float()
    net = Mobile(MOBILENET_V2, channels, 2)
    for highest in (255.0, 1.0):
        stored = pixels * (highest / 255)
        mean, std = stored.mean((0, 2, 3), keepdim=True), stored.std((0, 2, 3), keepdim=True)
        net.adapt(mean, std, highest)
        centre, spread = (torch.tensor(v).view(1, 3, 1, 1) for v in (MOBILENET_V2.centre, MOBILENET_V2.spread))
        assert torch.allclose(net.trunk[0]((stored - mean) / std), (pixels - centre) / spread, atol=1e-4)


def test_small_pictures_are_enlarged(monkeypatch):
    monkeypatch.setattr(pretrained, "SMALLEST", 96)
    net = Mobile(EFFICIENTNET_LITE0, 3, 5, size=32).eval()
    assert net.trunk[0](torch.randn(1, 3, 32, 32)).shape == (1, 3, 96, 96)
    assert Mobile(EFFICIENTNET_LITE0, 3, 5, size=160).trunk[0](torch.randn(1, 3, 160, 160)).shape[2:] == (160, 160)


@pytest.mark.parametrize("name", PLANS)
def test_fused_copy_and_stages(name):
    torch.manual_seed(0)
    net = lively(Mobile(PLANS[name], 3, 4))
    x = torch.randn(2, 3, 64, 64)
    assert fuse(net).difference(x) < 1e-4
    assert len(stages(net)) == 2
