"""Networks of transformers and timm: their own answers, runs, and what is refused.

Those of transformers are real ones, small and with random weights. `timm` is a stand-in: a module with the same
interface (create_model, pretrained_cfg, forward_features, forward_head), because timm needs torchvision.
"""

from __future__ import annotations

import shutil
import sys

import numpy as np
import pytest
import torch
from builders import normal, same_state
from safetensors.torch import load_file, save_file

import certus
from certus import Classifier, Features
from certus.config import resolve
from certus.errors import CertusError, UsageError
from certus.networks import network
from certus.networks.foreign import Blueprint
from certus.networks.inference import quick_stages
from certus.networks.modes import dropout_only
from certus.networks.outside import Outside, absolute, describe, is_outside
from certus.networks.weights import pretrained
from certus.training.build import build
from certus.training.loop import train
from certus.training.planning import complete
from certus.training.run_folder import RunFolder

TINY = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
SHORT = {"method": "mean-teacher", "labelled_batch": 6, "unlabelled_batch": 6, "threads": 1, "validation": 0}

TIMM = """
import os
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, features=12, fixed=False, num_classes=1000):
        super().__init__()
        self.fixed = fixed
        self.conv, self.norm = nn.Conv2d(3, features, 3, 4, bias=False), nn.BatchNorm2d(features)
        self.drop = nn.Dropout(0.9)
        self.fc = nn.Linear(features, num_classes) if num_classes else nn.Identity()
        size = 32 if fixed else 224
        self.pretrained_cfg = {"architecture": "tiny_fixed" if fixed else "tiny", "mean": (0.5, 0.4, 0.3),
            "std": (0.2, 0.2, 0.1), "input_size": (3, size, size), "fixed_input_size": fixed, "num_classes": 1000}

    def forward_features(self, x):
        assert not self.fixed or x.shape[2:] == (32, 32), "Input height doesn't match model (32)."
        return self.drop(self.norm(self.conv(x)).relu())

    def forward_head(self, x, pre_logits=False):
        x = x.mean((2, 3))
        return x if pre_logits else self.fc(x)

def create_model(name, pretrained=False, pretrained_cfg=None, num_classes=1000, **kwargs):
    if name not in ("tiny", "tiny.tag", "tiny_fixed"):
        raise RuntimeError(f"Unknown model ({name})")
    if kwargs:
        raise TypeError(f"unexpected {kwargs}")
    model = Model(fixed=name == "tiny_fixed", num_classes=num_classes)
    if pretrained:
        found = torch.load(os.environ["STAND_IN"], weights_only=False)
        model.load_state_dict(found, strict=False)
    return model
"""


@pytest.fixture
def timm(tmp_path, monkeypatch):
    """The stand-in, and the file of its weights."""
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages" / "timm.py").write_text(TIMM)
    monkeypatch.syspath_prepend(str(tmp_path / "packages"))
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    import timm

    torch.manual_seed(7)
    model = timm.Model()
    model.norm.running_mean.normal_()
    torch.save(model.state_dict(), tmp_path / "weights.pth")
    monkeypatch.setenv("STAND_IN", str(tmp_path / "weights.pth"))
    yield model.eval(), tmp_path / "weights.pth"
    sys.modules.pop("timm", None)


@pytest.fixture
def transformers(monkeypatch):
    """The package, which may not ask the network."""
    found = pytest.importorskip("transformers")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    found.logging.disable_progress_bar()
    torch.manual_seed(3)
    return found


@pytest.fixture
def dino(transformers, tmp_path):
    """A small DINOv2 in a folder, with how its pixels are scaled; the model."""
    model = transformers.AutoModel.from_config(transformers.Dinov2Config(**TINY, image_size=28, patch_size=14))
    model.save_pretrained(tmp_path / "dino")
    scale = '{"image_mean": [0.5, 0.4, 0.3], "image_std": [0.2, 0.2, 0.1], "rescale_factor": 0.00392156862745098}'
    (tmp_path / "dino" / "preprocessor_config.json").write_text(scale)
    return model.eval(), f"transformers:{tmp_path / 'dino'}"


def started(name, shape=(3, 98, 98), classes=4, weights="imagenet"):
    """A network with its weights, for pixels from 0 to 255."""
    net = network(name, shape, classes, 32, 0.5)
    net.load_state_dict(pretrained(name, weights, net), strict=False)
    net.adapt(torch.zeros(1), torch.ones(1), 255.0)
    return net.eval()


def scaled(images):
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in ([0.5, 0.4, 0.3], [0.2, 0.2, 0.1]))
    return (images / 255 - mean) / std


def pictures(*shape):
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


# --- transformers


@torch.no_grad()
def test_the_features_are_those_of_transformers(dino):
    model, name = dino
    images = torch.from_numpy(pictures(2, 3, 98, 98)).float()
    expected = model(scaled(images)).last_hidden_state[:, 0]
    net = started(name)
    assert torch.allclose(net.features(images), expected, atol=1e-4)
    assert torch.equal(net(images), net.head(net.features(images)))
    assert torch.allclose(torch.from_numpy(Features(name).transform(images.byte().numpy())), expected, atol=1e-4)
    assert len(Features(name).get_feature_names_out()) == 32
    assert Features(name).transform(pictures(0, 40, 40, 3)).shape == (0, 32)


@pytest.mark.parametrize(("shape", "sides"), [((8, 8), (98, 98)), ((100, 100), (98, 98)), ((96, 192), (98, 196))])
def test_sides_become_multiples_of_the_patch_and_small_pictures_are_enlarged(dino, shape, sides):
    net = network(dino[1], (1, *shape), 3, 32, 0.0)
    assert net.trunk[0](torch.zeros(1, 1, *shape)).shape == (1, 3, *sides)


@torch.no_grad()
@pytest.mark.parametrize("kind", ["ViT", "ResNet", "CLIP"])
def test_the_part_that_reads_pictures_is_taken_from_a_larger_network(transformers, tmp_path, kind):
    sizes = TINY | {"intermediate_size": 64}
    if kind == "ViT":
        model = transformers.ViTForImageClassification(transformers.ViTConfig(**sizes, image_size=96))
        inner = lambda x: model.vit(x).last_hidden_state[:, 0]  # noqa: E731
    elif kind == "ResNet":
        config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1])
        model = transformers.ResNetForImageClassification(config)
        inner = lambda x: model.resnet(x).pooler_output.flatten(1)  # noqa: E731
    else:
        text = sizes | {"vocab_size": 50, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
        config = transformers.CLIPConfig(text_config=text, vision_config=sizes | {"image_size": 96, "patch_size": 16})
        model = transformers.CLIPModel(config)
        inner = lambda x: model.vision_model(x).pooler_output  # noqa: E731
    model.eval().save_pretrained(tmp_path / "m")
    net = started(f"transformers:{tmp_path / 'm'}", (3, 96, 96))
    x = normal(2, 3, 96, 96)
    net.trunk[0].rescale(torch.tensor(net.trunk[0].centre), torch.tensor(net.trunk[0].spread), 255.0)
    assert torch.allclose(net.features(x), inner(x), atol=1e-4)


def test_a_run_resumes_and_answers_without_the_folder_it_came_from(dino, tmp_path):
    config = complete(resolve({"data": "digits", "network": dino[1], "steps": 4, **SHORT}))
    assert (config.optimiser, config.precision, config.weights) == ("adam", "fp32", "imagenet")
    whole = train(build(config), RunFolder(tmp_path / "whole"))

    class Stop(Exception):
        pass

    def listen(tick):
        if tick.step == 3:
            raise Stop

    with pytest.raises(Stop):
        train(build(config), RunFolder(tmp_path / "cut"), listen, save_seconds=0.0)
    assert RunFolder(tmp_path / "cut").saved_step() == 2
    shutil.rmtree(tmp_path / "dino")
    resumed = certus.train(resume=tmp_path / "cut")
    assert resumed.result["test_error"] == whole["test_error"]
    loaded = certus.load(tmp_path / "whole")
    assert all(same_state(a, b) for a, b in zip(loaded.nets, resumed.nets, strict=True))
    assert isinstance(loaded.nets[0], Outside)
    answer = loaded.predict(pictures(3, 8, 8))
    assert answer.probabilities.shape == (3, 10)
    assert (answer.uncertainty["mi"] > 0).all()


def test_draws_compute_the_model_once(dino, caplog):
    net, calls = started(dino[1]).train(), []
    assert not any(m.training for m in net.trunk[1].modules())
    images = torch.zeros(2, 3, 98, 98)
    first, *later = quick_stages(net, images)
    net.trunk[1].model.embeddings.register_forward_hook(lambda *_: calls.append(1))
    with dropout_only(net), torch.no_grad():
        features = first(images)
        draws = [torch.nn.Sequential(*later)(features) for _ in range(3)]
    assert len(calls) == 1
    assert not torch.equal(draws[0], draws[1])
    assert not caplog.records


def test_batch_norms_keep_their_statistics_and_the_rest_learns(transformers, tmp_path):
    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1])
    transformers.ResNetModel(config).save_pretrained(tmp_path / "m")
    run = build(complete(resolve({"data": "digits", "network": f"transformers:{tmp_path / 'm'}", "steps": 3, **SHORT})))
    net = run.method.students[0]
    before = {name: t.clone() for name, t in net.state_dict().items()}
    for number in range(2):
        run.advance(number)
    changed = {name for name, t in net.state_dict().items() if not torch.equal(t, before[name])}
    assert not [name for name in changed if "running" in name or "num_batches" in name]
    assert {"trunk.1.model.embedder.embedder.convolution.weight", "head.weight"} <= changed


def test_weights_from_a_file_have_the_names_of_the_package_or_of_certus(dino, tmp_path):
    model, name = dino
    net = started(name)
    save_file(dict(net.state_dict()), tmp_path / "own.safetensors")
    for file in (tmp_path / "dino" / "model.safetensors", tmp_path / "own.safetensors"):
        torch.manual_seed(9)
        again = started(name, weights=str(file))
        assert same_state(again.trunk[1].model, model), file
        assert torch.equal(again.head.weight, net.head.weight) == (file.name == "own.safetensors")
    torch.save({"a": torch.zeros(2)}, tmp_path / "other.pth")
    with pytest.raises(UsageError, match="belong to another network"):
        started(name, weights=str(tmp_path / "other.pth"))


def test_a_classifier_of_arrays(dino):
    X, y = pictures(12, 10, 10, 3), np.arange(12) % 2
    clf = Classifier(network=dino[1], steps=2, settings=SHORT | {"method": "supervised"}).fit(X, y)
    assert isinstance(clf.model_.nets[0], Outside)
    assert clf.predict_proba(X).shape == (12, 2)


def refused(match, name, weights=False):
    with pytest.raises(UsageError, match=match) as found:
        started(name) if weights else describe(name)
    assert "\n" not in str(found.value)
    assert len(str(found.value)) < 500


def test_what_transformers_does_not_have_is_one_sentence(dino, transformers, tmp_path):
    refused("cannot give network transformers:nobody/nothing: We couldn't connect", "transformers:nobody/nothing")
    refused("names a folder that does not exist: /no/such", "transformers:/no/such")
    refused("names no model of transformers", "transformers:")
    (tmp_path / "empty").mkdir()
    refused("Unrecognized model", f"transformers:{tmp_path / 'empty'}")
    text = transformers.BertModel(transformers.BertConfig(**TINY, vocab_size=50, intermediate_size=32))
    text.save_pretrained(tmp_path / "text")
    refused("reads input_ids, not pictures", f"transformers:{tmp_path / 'text'}")
    weights = load_file(tmp_path / "dino" / "model.safetensors")
    save_file(dict(list(weights.items())[3:]), tmp_path / "dino" / "model.safetensors", {"format": "pt"})
    refused("no weights for every layer", dino[1], weights=True)
    (tmp_path / "dino" / "model.safetensors").unlink()
    torch.save(weights, tmp_path / "dino" / "pytorch_model.bin")
    refused("safetensors", dino[1], weights=True)


@pytest.mark.usefixtures("transformers")
def test_code_that_comes_with_a_model_is_not_run(tmp_path, capsys):
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "mine", "auto_map": {"AutoConfig": "mine.Config"}}')
    (folder / "mine.py").write_text("print('code of a model was run')")
    refused("cannot give network", f"transformers:{folder}")
    assert "was run" not in capsys.readouterr().out


# --- timm


@torch.no_grad()
def test_the_features_are_those_of_timm(timm):
    model, _ = timm
    images = torch.from_numpy(pictures(2, 3, 96, 96)).float()
    expected = model.forward_head(model.forward_features(scaled(images)), pre_logits=True)
    net = started("timm:tiny.tag", (3, 96, 96))
    assert torch.allclose(net.features(images), expected, atol=1e-5)
    net.train()
    with dropout_only(net):  # the dropout of timm's own is off
        assert torch.allclose(net.trunk[:2](images), expected, atol=1e-5)


@pytest.mark.usefixtures("timm")
def test_a_model_that_takes_one_size_gets_it():
    net = network("timm:tiny_fixed", (3, 50, 70), 3, 32, 0.0)
    assert net.trunk[0](torch.zeros(1, 3, 50, 70)).shape == (1, 3, 32, 32)


def test_a_run_of_timm_answers_without_its_weights(timm, tmp_path):
    trained = certus.train("digits", network="timm:tiny.tag", steps=3, out=tmp_path / "run", **SHORT)
    timm[1].unlink()
    loaded = certus.load(tmp_path / "run")
    images = pictures(3, 8, 8)
    assert np.array_equal(trained.predict(images).probabilities, loaded.predict(images).probabilities)
    assert torch.equal(loaded.nets[0].trunk[1].model.norm.running_mean, timm[0].norm.running_mean)


class Evil:
    def __reduce__(self):
        return (print, ("code in a file of weights was run",))


def test_what_timm_does_not_have_is_one_sentence(timm, capsys, monkeypatch):
    refused(r"timm cannot give network timm:resnet1: Unknown model \(resnet1\)", "timm:resnet1")
    torch.save({"conv.weight": Evil()}, timm[1])
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    refused("timm cannot give network timm:tiny: Weights only load failed", "timm:tiny", weights=True)
    assert "was run" not in capsys.readouterr().out
    with pytest.raises(UsageError, match="fixed width"):
        network("timm:tiny", (3, 32, 32), 4, 64, 0.1)


# --- without a package


@pytest.mark.parametrize("package", ["timm", "transformers"])
def test_without_the_package_the_error_says_what_to_install(package, monkeypatch):
    monkeypatch.setattr("certus.networks.foreign.find_spec", lambda _: None)
    refused(
        rf"Network {package}:a needs the package {package}: run `pip install certus-ssl\[{package}\]`", f"{package}:a"
    )
    with pytest.raises(UsageError, match="pip install"):
        certus.train("digits", network=f"{package}:a", steps=1)


def test_a_package_that_cannot_be_imported_is_one_sentence_with_the_reason(tmp_path, monkeypatch):
    (tmp_path / "timm.py").write_text("import no_such_module_here")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    assert resolve({"data": "digits", "network": "timm:resnet18"}).optimiser == "adam"  # imports nothing
    refused("installed but cannot be imported .*No module named 'no_such_module_here'", "timm:resnet18")


def test_names():
    assert is_outside("timm:resnet18")
    assert is_outside("transformers:a/b")
    assert not any(map(is_outside, ("timm", "sprint", "other:resnet18", "auto")))
    assert absolute("sprint") == "sprint"


def test_a_relative_folder_becomes_absolute(tmp_path, monkeypatch):
    (tmp_path / "m").mkdir()
    monkeypatch.chdir(tmp_path)
    assert absolute("transformers:m") == absolute("transformers:./m") == f"transformers:{tmp_path / 'm'}"
    assert absolute("timm:local-dir:m") == f"timm:local-dir:{tmp_path / 'm'}"
    assert absolute("timm:m") == "timm:m"
    assert absolute("transformers:facebook/dinov2-small") == "transformers:facebook/dinov2-small"


@pytest.mark.usefixtures("timm")
def test_a_package_that_certus_does_not_know_is_refused():
    kept = describe("timm:tiny").plain()
    assert Blueprint.of(kept) == describe("timm:tiny")
    with pytest.raises(CertusError, match="does not know"):
        Blueprint.of(kept | {"package": "os"})
