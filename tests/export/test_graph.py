"""The graph, before it is a file, against the model that it is made of."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from builders import SHAPES, narrow, normal, outspoken
from torch import nn

from certus.certainty.calibration import Calibration, Level
from certus.errors import UsageError
from certus.export.agreement import as_inputs, masked_metrics, spearman
from certus.export.graph import DRAWN, Graph
from certus.model import Model
from certus.networks import NETWORKS, network
from certus.networks.linear import Linear
from certus.networks.pretrained import Pretrained
from certus.views.looks import Looks


def model_of(name: str, nets: int = 1, **more: object) -> Model:
    """Untrained networks with statistics that are not those of a new one."""
    made = []
    for seed in range(nets + bool(more.get("witnessed"))):
        torch.manual_seed(seed)
        net = outspoken(network(name, SHAPES[name], 3, narrow(name, 8), 0.3)).eval()
        for norm in (m for m in net.modules() if isinstance(m, nn.BatchNorm2d)):
            norm.running_mean.uniform_(-0.5, 0.5)
            norm.running_var.uniform_(0.5, 2)
        for weight in net.trunk.parameters() if isinstance(net, Pretrained) else ():
            weight.data *= 2.4  # else no signal arrives
        made.append(net)
    shape = SHAPES[name]
    scale = (1, -1, *[1] * (len(shape) - 1))
    pictures = len(shape) == 3
    return Model(
        nets=tuple(made[:nets]),
        witnesses=tuple(made[nets:]),
        classes=("a", "b", "c"),
        shape=shape,
        mean=torch.full((shape[0],), 120.0 if pictures else 0.1).view(scale),
        std=torch.full((shape[0],), 50.0 if pictures else 0.9).view(scale),
        looks=Looks(bool(more.get("mirror")), int(more.get("shift", 0))),  # type: ignore[call-overload]
        calibration=more.get("calibration"),  # type: ignore[arg-type]
    )


def stored(model: Model, count: int = 6) -> torch.Tensor:
    x = normal(count, *model.shape, seed=3)
    return (x * 60 + 128).clamp(0, 255).to(torch.uint8) if len(model.shape) == 3 else x


def check(model: Model, draws: int = 4) -> Graph:
    graph, images = Graph(model, "crop", draws).eval(), stored(model)
    with torch.no_grad():
        given = graph.answer(torch.from_numpy(as_inputs(images)), torch.tensor(0))
    own = model.predict(images, draws)
    assert np.array_equal(given.label.numpy(), own.labels)
    assert np.allclose(given.probabilities.numpy(), own.probabilities, atol=1e-5)
    assert np.allclose(given.confidence.numpy(), own.probabilities.max(1), atol=1e-5)
    expected = {**own.uncertainty, **masked_metrics(model, images, draws)}
    for i, name in enumerate(graph.columns):
        assert np.allclose(given.uncertainty[:, i], expected[name], atol=1e-5), name
        assert given.uncertainty[:, i].std() > 0
    return graph


@pytest.mark.parametrize("name", [name for name in NETWORKS if name != "mobilenet-v2"])
def test_every_network(name: str) -> None:
    assert check(model_of(name)).columns == ("confidence", *DRAWN)


@pytest.mark.parametrize(("mirror", "shift"), [(False, 0), (True, 0), (False, 2), (True, 1)])
def test_several_teachers_with_a_witness_and_averaged_answers(mirror: bool, shift: int) -> None:
    assert check(model_of("sprint", 2, mirror=mirror, shift=shift, witnessed=True)).columns[-1] == "witness"


class Trunk(nn.Module):
    """From pixels to 12 features, with a dropout that never drops, as the trunk of a pretrained network has it."""

    def __init__(self) -> None:
        super().__init__()
        self.quick = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Dropout(0.0))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.quick(images.float())


def test_a_head_on_features() -> None:
    torch.manual_seed(0)
    head = Linear(12, 3, dropout=0.3).eval()
    nn.init.normal_(head.head.weight)
    mean, std = torch.full((1, 12), 11.0), torch.full((1, 12), 0.3)
    check(Model((head,), ("a", "b", "c"), (3, 8, 8), mean, std, trunk=Trunk()))  # type: ignore[arg-type]


def test_the_seed_decides_the_draws_and_nothing_else() -> None:
    model = model_of("cnn13-small")
    graph, images = Graph(model, "crop", 4).eval(), torch.from_numpy(as_inputs(stored(model)))
    with torch.no_grad():
        a, b, c = (graph.answer(images, torch.tensor(seed)) for seed in (1, 1, 2))
        alone = graph.answer(images[2:3], torch.tensor(1))
    assert torch.equal(a.uncertainty, b.uncertainty)
    assert not torch.equal(a.uncertainty[:, 1], c.uncertainty[:, 1])
    assert torch.equal(a.probabilities, c.probabilities)
    assert torch.allclose(alone.uncertainty[0], a.uncertainty[2], atol=1e-6)  # whatever stands beside it


def test_the_draws_of_the_graph_have_the_distribution_of_certus() -> None:
    model = model_of("mlp")
    images = stored(model, 40)
    with torch.no_grad():
        given = Graph(model, "crop", 200).eval().answer(images, torch.tensor(0)).uncertainty[:, 1:4]
    own = model.predict(images, 200).uncertainty
    for i, name in enumerate(DRAWN[:3]):
        assert spearman(given[:, i].numpy(), own[name]) > 0.9
        assert np.allclose(given[:, i].mean(), own[name].mean(), rtol=0.1)


def calibration(metric: str, draws: int, threshold: float | None) -> Calibration:
    level = Level(threshold, 5, 0, 0.4)
    return Calibration("", "moons", 10, metric, draws, 2.0, (1.0, 0.9), 0.4, 0.95, level, (level,))


def test_a_calibrated_model_has_its_temperature_and_says_what_it_answers() -> None:
    plain = model_of("mlp")
    middle = float(np.median(plain.predict(stored(plain), 0).uncertainty["confidence"]))
    model = model_of("mlp", calibration=calibration("confidence", 0, middle))
    graph = check(model)
    with torch.no_grad():
        answered = graph.answer(stored(model), torch.tensor(0)).answered
    assert answered is not None
    assert np.array_equal(answered.numpy(), model.predict(stored(model)).answered)
    assert 0 < answered.sum() < 6
    everything = Graph(model_of("mlp", calibration=calibration("pe", 4, None)), "crop", 4).eval()
    with torch.no_grad():
        assert everything.answer(stored(model), torch.tensor(0)).answered.all()
    assert not Graph(model_of("mlp", calibration=calibration("pe", 10, None)), "crop", 4).decides


def test_without_draws_or_dropout_there_are_no_drawn_columns() -> None:
    assert Graph(model_of("mlp"), "crop", 0).columns == ("confidence",)


def test_other_dropouts_are_refused() -> None:
    model = model_of("cnn13-small")
    odd = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Dropout2d(0.2), nn.Flatten(), nn.Linear(144, 3))
    with pytest.raises(UsageError, match="Dropout2d cannot be exported"):
        Graph(Model((odd,), model.classes, model.shape, model.mean, model.std), "crop", 4)
