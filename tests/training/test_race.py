"""Which network a folder of pictures gets."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from builders import keep_random_weights
from PIL import Image

import certus
from certus.config import decide, resolve
from certus.data import Part, load
from certus.networks.mobile import EFFICIENTNET_LITE0, Mobile
from certus.networks.weights import kept, learnt
from certus.training import race as races
from certus.training.planning import complete
from certus.training.race import PRETRAINED, SCRATCH, Look, Race, depth_for, looked, race, tried, wanted


@pytest.fixture
def weights(tmp_path, monkeypatch):
    """Weights that anyone may have: random ones."""
    monkeypatch.setenv("CERTUS_WEIGHTS", str(tmp_path / "weights"))
    keep_random_weights()
    monkeypatch.setenv("CERTUS_CACHE", str(tmp_path / "cache"))


def folder_of(root: Path, labelled: int, validation: int = 0) -> dict[str, object]:
    rng = np.random.default_rng(0)
    parts = {"train": labelled, "val": validation} if validation else {"train": labelled}
    for part, count in parts.items():
        for name in ("a", "b"):
            (root / part / name).mkdir(parents=True)
            for i in range(count):
                picture = rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)
                Image.fromarray(picture).save(root / part / name / f"{i}.png")
    (root / "train" / "unlabelled").mkdir()
    for i in range(8):
        Image.fromarray(rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(root / f"train/unlabelled/{i}.png")
    return {"data": str(root), "threads": 1, "device": "cpu"}


def test_only_own_pictures_whose_network_is_left_open(tmp_path):
    given = folder_of(tmp_path / "photos", 2)
    assert wanted(given)
    assert wanted(given | {"network": "auto"})
    assert not wanted(given | {"network": "sprint"})
    assert not wanted(given | {"init": "a-run"})
    assert not wanted(given | {"width": 64})
    assert not wanted(given | {"depth": "head"})
    assert not wanted(given | {"guess": True})
    for implied in ({"depth": "head"}, {"guess": True}):
        assert resolve(given | implied).network == PRETRAINED
    assert not wanted(given | {"method": "rotation"})
    assert not wanted({"data": "cifar10"})
    assert not wanted({})


def test_the_race_is_part_of_the_minutes():
    assert Race("sprint", "", minutes=1.5).left(10.0) == 8.5
    assert Race("sprint", "", minutes=1.5).left(2.0) == 1.0
    assert Race("sprint", "", minutes=1.5).left(None) is None


def test_without_weights_it_says_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setenv("CERTUS_WEIGHTS", str(tmp_path / "none"))
    given = folder_of(tmp_path / "photos", 2)
    found = race(given, load(given["data"]), None)
    assert found.network == SCRATCH
    assert "pip install certus-ssl[imagenet]" in found.why


@pytest.mark.parametrize(
    ("look", "network"),
    [
        (Look(0.4, 0.5, 0.2, 0.001), PRETRAINED),
        (Look(0.5, 0.5, 0.2, 0.001), PRETRAINED),
        (Look(0.5, 0.4, 0.2, 0.001), SCRATCH),
    ],
)
def test_with_few_validation_pictures_the_look_decides(tmp_path, weights, monkeypatch, look, network):  # noqa: ARG001
    monkeypatch.setattr(races, "tried", None)
    monkeypatch.setattr(races, "looked", lambda *_: look)
    given = folder_of(tmp_path / "photos", 10)
    found = race(given, load(given["data"]), 3.0)
    assert found.network == network
    assert str(look) in found.why


@pytest.mark.parametrize(("features", "edges", "network"), [(0.2, 0.5, PRETRAINED), (0.5, 0.2, SCRATCH)])
def test_where_the_look_is_clear_there_is_no_race(tmp_path, weights, monkeypatch, features, edges, network):  # noqa: ARG001
    monkeypatch.setattr(races, "tried", None)
    monkeypatch.setattr(races, "looked", lambda *_: Look(features, edges, 0.1, 0.001))
    given = folder_of(tmp_path / "photos", 2, validation=15)
    found = race(given, load(given["data"]), 3.0)
    assert found.network == network
    assert found.settings == {"network": network}


def test_where_few_steps_fit_only_the_head_learns(tmp_path, weights, monkeypatch):  # noqa: ARG001
    monkeypatch.setattr(races, "looked", lambda *_: Look(0.2, 0.5, 0.1, 0.5))
    given = folder_of(tmp_path / "photos", 2, validation=15)
    found = race(given, load(given["data"]), 1.0)
    assert found.settings == {"network": PRETRAINED, "depth": "head"}
    assert "only its head learns" in found.why
    for seen in ({"flip": True}, {"translate": 4}, {"strength": 0.3}):
        assert race(given | seen, load(given["data"]), 1.0).depth == "all"
    assert race(given | {"flip": "auto"}, load(given["data"]), 1.0).depth == "head"
    assert race(given, load(given["data"]), 600.0).depth == "all"
    assert race(given, load(given["data"]), None).depth == "all"
    look = Look(0.2, 0.5, 0.1, 0.004)
    assert [depth_for(look, 1.0, {}, few) for few in (False, True)] == ["all", "head"]
    monkeypatch.setattr(races, "looked", lambda *_: Look(0.5, 0.2, 0.1, 0.5))
    assert race(given, load(given["data"]), 1.0).settings == {"network": SCRATCH}


def test_features_decide_whether_pictures_are_mirrored(tmp_path, weights):  # noqa: ARG001
    """Symmetric pictures may be mirrored. Where a class is the mirror image of the other, they may not."""
    given = folder_of(tmp_path / "photos", 20)
    data = load(given["data"])
    config = decide(resolve(given | {"network": PRETRAINED, "method": "supervised"}), data)
    half = torch.linspace(0.1, 1, 32).view(1, 1, 1, 32)
    turned = torch.where((data.train.labels == 1).view(-1, 1, 1, 1), half, half.flip(-1))
    even = torch.where((data.train.labels == 1).view(-1, 1, 1, 1), 0.3, 1.0)
    for factor, flip in ((turned, False), (even, True)):
        train = Part((data.train.images * factor).to(torch.uint8), data.train.labels)
        found = looked(config, replace(data, train=train), 0.01, mirroring=True)
        assert found.mirroring.flip == flip
        chosen = Race(PRETRAINED, "why", mirroring=found.mirroring)
        assert chosen.settings == {"network": PRETRAINED, "flip": flip}
        assert len(chosen.remarks) == 2
        assert Race(SCRATCH, "why", mirroring=found.mirroring).settings == {"network": SCRATCH}
    assert looked(config, data, 0.01).mirroring is None


def test_the_look_sees_what_features_and_edges_tell(tmp_path, weights):  # noqa: ARG001
    """Labels by brightness are in the features; those of noise are nowhere."""
    given = folder_of(tmp_path / "photos", 20)
    data = load(given["data"])
    config = decide(resolve(given | {"network": PRETRAINED, "method": "supervised"}), data)
    noise = looked(config, data, 0.01)
    assert not noise.clear
    assert noise.seconds > 0
    level = torch.where(data.train.labels == 1, 0.3, 1.0).view(-1, 1, 1, 1)
    bright = replace(data, train=Part((data.train.images * level).to(torch.uint8), data.train.labels))
    found = looked(config, bright, 0.01)
    assert min(found.features, found.edges) < 0.2


@pytest.mark.parametrize(("scratch", "winner"), [(10.0, SCRATCH), (30.0, PRETRAINED), (20.0, PRETRAINED)])
def test_validation_labels_decide(tmp_path, weights, monkeypatch, scratch, winner):  # noqa: ARG001
    seen = []

    def fake(given, _, minutes):
        seen.append((given["network"], given["method"], minutes))
        return scratch if given["network"] == SCRATCH else 20.0

    monkeypatch.setattr(races, "tried", fake)
    monkeypatch.setattr(races, "looked", lambda *_: Look(0.4, 0.5, 0.2, 0.001))
    given = folder_of(tmp_path / "photos", 2, validation=15)
    found = race(given | {"method": "mean-teacher", "options": {"weight": 2.0}}, load(given["data"]), 5.0)
    assert found.network == winner
    assert "20.0 %" in found.why
    assert f"{scratch:.1f} %" in found.why
    assert "30 validation pictures" in found.why
    assert seen == [(PRETRAINED, "supervised", pytest.approx(0.4)), (SCRATCH, "supervised", pytest.approx(0.4))]


def test_a_trial_trains_and_is_judged_on_validation_pictures(tmp_path, weights):  # noqa: ARG001
    given = folder_of(tmp_path / "photos", 3, validation=4)
    error = tried(given | {"network": PRETRAINED, "method": "supervised", "steps": 2}, load(given["data"]), None)
    assert error in {100 * i / 8 for i in range(9)}


def test_fine_tuning_starts_from_the_weights_and_answers_after_loading(tmp_path, weights):  # noqa: ARG001
    """Also the setting `weights` with a file; a loaded run needs neither."""
    given = folder_of(tmp_path / "photos", 3)
    other = {"weights": str(kept(PRETRAINED))}
    for i, more in enumerate(({}, other)):
        settings = {**given, "network": PRETRAINED, "method": "mean-teacher", "labelled_batch": 4, **more}
        model = certus.train(**settings, unlabelled_batch=4, steps=2, out=tmp_path / f"run-{i}")
        kept_weights = learnt(Mobile(EFFICIENTNET_LITE0, 3, 4))
        moved = (model.nets[0].trunk[2].weight - kept_weights["trunk.2.weight"]).abs().max()
        assert moved > 0.01  # the random initialisation of another seed
        images = np.zeros((2, 32, 32, 3), np.uint8)
        answers = model.predict(images)
        kept(PRETRAINED).rename(tmp_path / "gone")
        again = certus.load(tmp_path / f"run-{i}").predict(images)
        (tmp_path / "gone").rename(kept(PRETRAINED))
        assert np.array_equal(answers.probabilities, again.probabilities)
        assert "pe" in answers.uncertainty


def test_a_run_starts_from_the_trunk(tmp_path, weights):  # noqa: ARG001
    from certus.training.build import build

    given = folder_of(tmp_path / "photos", 3)
    run = build(complete(resolve(given | {"network": PRETRAINED, "method": "mean-teacher", "steps": 1})))
    torch.manual_seed(0)
    expected = {name: 2.4 * t for name, t in learnt(Mobile(EFFICIENTNET_LITE0, 3, 4)).items()}
    for net in (*run.method.students, *run.method.answers):
        own = learnt(net)
        assert all(torch.equal(own[n], t) for n, t in expected.items() if not n.startswith("head."))
