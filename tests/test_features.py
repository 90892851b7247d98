"""Features of a pretrained network for scikit-learn."""

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from certus import Features
from certus.errors import UsageError
from certus.networks.mobile import EFFICIENTNET_LITE0, Mobile
from certus.networks.weights import keep, kept, learnt


@pytest.fixture(autouse=True)
def net(tmp_path, monkeypatch):
    """A network whose random weights take the place of ImageNet's."""
    monkeypatch.setenv("CERTUS_WEIGHTS", str(tmp_path))
    torch.manual_seed(0)
    net = Mobile(EFFICIENTNET_LITE0, 3, 4, size=96)
    keep(kept("efficientnet-lite0"), learnt(net))
    return net.eval()


def pictures(*shape):
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def test_are_those_of_the_network(net):
    X = pictures(3, 96, 96, 3)
    net.adapt(torch.zeros(3), torch.ones(3), 255.0)
    with torch.no_grad():
        expected = net.features(torch.from_numpy(X).permute(0, 3, 1, 2).float())
    found = Features().fit(X).transform(X)
    assert found.dtype == np.float32
    assert found.shape == (3, len(Features().get_feature_names_out()))
    assert np.allclose(found, expected.numpy(), atol=1e-4 * expected.abs().max().item())


def test_do_not_depend_on_the_layout_or_the_scale():
    X = pictures(2, 40, 40, 3)
    usual = Features().transform(X)
    assert np.allclose(usual, Features().transform(X.transpose(0, 3, 1, 2)), atol=1e-6)
    assert np.allclose(usual, Features().transform(X / 255), atol=1e-4 * np.abs(usual).max())
    grey = X[..., 0]
    assert np.allclose(
        Features().transform(grey), Features().transform(np.stack([grey] * 3, -1)), atol=1e-4 * np.abs(usual).max()
    )


def test_work_in_a_pipeline_and_leave_random_numbers_alone():
    X, y = pictures(8, 32, 32, 3), np.arange(8) % 2
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    model = make_pipeline(clone(Features()), LogisticRegression(max_iter=5)).fit(X, y)
    assert torch.equal(torch.rand(1), expected)
    assert model.predict(X).shape == (8,)
    assert Features().transform(X[:0]).shape == (0, 1280)


def test_refuse_what_makes_no_sense():
    with pytest.raises(UsageError, match="`network` must be one of efficientnet-lite0, mobilenet-v2"):
        Features("resnet").transform(pictures(1, 32, 32, 3))
    with pytest.raises(UsageError, match="2 channels"):
        Features().transform(pictures(1, 32, 32, 2))
