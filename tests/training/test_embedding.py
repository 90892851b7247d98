"""Depths of a network with weights: one layer on features, its last blocks, or all of it."""

import os
from functools import partial

import numpy as np
import pytest
import torch
from builders import keep_random_weights, same_state
from PIL import Image
from torch.testing import assert_close

import certus
from certus.cli.main import main
from certus.config import resolve
from certus.data import load
from certus.data.remembered import Remembered
from certus.errors import CertusError
from certus.training import embedding
from certus.training.build import build
from certus.training.embedding import embedded, rooted, trunk_of
from certus.training.loop import train
from certus.training.planning import complete
from certus.training.run_folder import RunFolder

NAME = "efficientnet-lite0"


@pytest.fixture(autouse=True)
def weights(tmp_path, monkeypatch):
    """A network whose random weights take the place of ImageNet's, and a cache of the test's own."""
    monkeypatch.setenv("CERTUS_WEIGHTS", str(tmp_path / "weights"))
    monkeypatch.setenv("CERTUS_CACHE", str(tmp_path / "cache"))
    keep_random_weights()


@pytest.fixture
def photos(tmp_path):
    """Bright and dark pictures of 32 pixels: 5 labelled and 2 for test of each, 8 unlabelled."""
    random, root = np.random.default_rng(0), tmp_path / "photos"
    names = {"bright": 180, "dark": 60}
    for name, level in names.items():
        for part, count in (("train", 5), ("test", 2)):
            for i in range(count):
                save(root / part / name / f"{i}.png", level, random)
    for i in range(8):
        save(root / "unlabelled" / f"{i}.png", list(names.values())[i % 2], random)
    return root


def save(path, level, random):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(random.integers(level - 40, level + 40, (32, 32, 3), dtype=np.uint8)).save(path)


def config(photos, depth="head", **settings):
    given = {"data": str(photos), "network": NAME, "depth": depth, "steps": 3, "threads": 1, "validation": 0}
    return complete(resolve({**given, "flip": False} | settings))


def test_networks_see_the_features_of_every_picture(photos):
    settings = config(photos, size=32)
    run, data = build(settings), load(str(photos), size=32)
    trunk = trunk_of(settings, data)
    assert run.inputs.shape == (1280,)
    assert_close(run.inputs.train.images, rooted(trunk(data.train.images).half().float()))
    assert_close(run.inputs.test.images, rooted(trunk(data.test.images).half().float()))
    seen = run.inputs.normalised(run.inputs.train.images)
    assert_close(seen.mean(0), torch.zeros(1280), rtol=0, atol=1e-4)
    assert_close(seen.square().mean(), torch.tensor(1.0))
    assert run.data.shape == (3, 32, 32)


def test_pictures_that_no_run_may_see_are_not_embedded(photos, monkeypatch):
    asked = []
    monkeypatch.setattr(embedding.Trunk, "__call__", lambda _, x: asked.append(len(x)) or torch.rand(len(x), 1280))
    data = load(str(photos), size=32)
    found = embedded(data, config(photos, unlabelled=3))
    assert sum(asked) == 10 + 3 + 4
    seen = found.train.images[found.known]
    assert (seen.abs().sum(1) > 0).all()
    mean, std = found.scale
    assert_close(mean, seen.mean(0, keepdim=True))
    assert_close(std, (seen - mean).square().mean().sqrt().expand(1, 1280))


def test_the_saved_run_answers_pictures_alone(photos, tmp_path):
    run, folder = build(config(photos)), RunFolder(tmp_path / "run")
    result = train(run, folder)
    for file in (tmp_path / "weights", tmp_path / "cache"):
        file.rename(file.with_name(f"no-{file.name}"))
    model = certus.load(folder.path)
    assert model.shape == (3, 32, 32)
    answered = model.predict(run.data.test.images.permute(0, 2, 3, 1).numpy())
    direct = model.mean_answer(model.nets, run.inputs.test.images)
    assert_close(torch.from_numpy(answered.probabilities), direct, rtol=0.02, atol=0.02)  # without half precision
    wrong = 100 * (answered.labels != run.data.test.labels.numpy()).mean()
    assert result["test_error"] == pytest.approx(wrong)
    assert {"pe", "confidence"} <= answered.uncertainty.keys()


def test_a_run_resumes_to_the_bit(photos, tmp_path):
    whole, resumed = build(config(photos)), build(config(photos))
    train(whole, RunFolder(tmp_path / "whole"))

    def interrupt(tick):
        if tick.step == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(build(config(photos)), RunFolder(tmp_path / "stopped"), interrupt, save_seconds=0.0)
    train(resumed, RunFolder(tmp_path / "stopped"))
    assert same_state(whole.method.state, resumed.method.state)


@pytest.mark.parametrize("damage", ["another", "cut", "missing"])
def test_a_damaged_trunk_is_named(photos, tmp_path, damage):
    folder = RunFolder(tmp_path / "run")
    train(build(config(photos)), folder)
    if damage == "missing":
        folder.trunk.unlink()
    elif damage == "cut":
        folder.trunk.write_bytes(folder.trunk.read_bytes()[:-9])
    else:
        data = bytearray(folder.trunk.read_bytes())
        data[-1] ^= 1
        folder.trunk.write_bytes(data)
    with pytest.raises(CertusError, match=r"trunk\.safetensors"):
        certus.load(folder.path)


@pytest.mark.parametrize("depth", ["all", "last", "head"])
def test_what_learns(photos, depth):
    run = build(config(photos, depth, method="mean-teacher"))
    (student,) = run.method.students
    before = {name: p.detach().clone() for name, p in student.named_parameters()}
    for number in range(3):
        run.advance(number)
    changed = {name for name, p in student.named_parameters() if not torch.equal(p, before[name])}
    if depth == "head":
        assert changed == {"head.weight", "head.bias"}
        return
    convolutions = [name.removesuffix(".weight") for name in before if name.endswith("weight")][:-1]
    learning = convolutions[-(len(convolutions) // 3) :] if depth == "last" else convolutions
    assert changed == {f"{layer}.{part}" for layer in (*learning, "head") for part in ("weight", "bias")}


def test_the_time_decides_how_many_pictures_are_embedded(photos, monkeypatch):
    monkeypatch.setattr("certus.training.planning.seconds", lambda *_: 14 * 2.0)
    monkeypatch.setattr("certus.training.planning.TRIED", 14)
    found = complete(resolve({"data": str(photos), "network": NAME, "depth": "head", "validation": 0}), minutes=0.8)
    assert found.unlabelled == int(0.8 * 48 / 2) - 10 - 4  # two seconds for each picture
    plenty = complete(resolve({"data": str(photos), "network": NAME, "depth": "head", "validation": 0}), minutes=9)
    assert plenty.unlabelled == 0


@pytest.mark.parametrize(("busy", "given", "taken"), [(True, 0, 1), (False, 0, 2), (True, 2, 2)])
def test_one_thread_embeds_where_two_wait_for_each_other(photos, monkeypatch, busy, given, taken):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr("certus.training.planning.seconds", lambda _, n: {1: 1.0, 2: 9.0 if busy else 0.6}[n])
    settings = {"data": str(photos), "network": NAME, "depth": "head", "threads": given}
    assert complete(resolve(settings), minutes=9).threads == taken


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--network sprint --depth head", "--depth would change nothing: network sprint has no weights"),
        (f"--network {NAME} --depth head --flip", "cannot be shifted or mirrored"),
        (f"--network {NAME} --depth tail", "There is no depth 'tail'. Known: all, head, last."),
        (f"--network {NAME} --depth head --strong distort", "--strong would change nothing"),
    ],
)
def test_what_makes_no_sense_is_refused(photos, tmp_path, words, sentence, capsys):
    assert main(["train", "--data", str(photos), *words.split(), "--steps", "2", "--out", str(tmp_path / "run")]) == 2
    assert sentence in capsys.readouterr().err


def test_it_is_one_command(photos, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "run"
    words = f"train --data {photos} --network {NAME} --depth head --steps 40 --threads 1 --out {out}"
    assert main(words.split()) == 0
    shown = capsys.readouterr()
    assert "label-propagation on" in shown.err
    assert "Test error" in shown.out
    assert main(["predict", str(out), str(photos / "test"), "--out", str(tmp_path / "answers.csv")]) == 0
    assert main(["evaluate", str(out)]) == 0
    assert main(["report", str(out)]) == 0
    assert "4 pictures" in capsys.readouterr().out


def test_the_cache_is_shared_between_runs(photos, monkeypatch):
    build(config(photos))
    monkeypatch.setattr(Remembered, "add", partial(pytest.fail, "a picture was embedded twice"))
    build(config(photos, seed=1))


def test_a_classifier_learns_from_features_too(photos):
    part = load(str(photos), size=32).train
    images, labels = part.images.permute(0, 2, 3, 1).numpy(), part.labels.numpy()
    fitted = certus.Classifier(network=NAME, steps=20, settings={"depth": "head"}).fit(images, labels)
    assert fitted.predict_proba(images).shape == (len(images), 2)
    assert (fitted.predict(images)[labels >= 0] == labels[labels >= 0]).mean() > 0.7
