"""Guesses for the warm-up: labels travel to similar pictures; the most certain are learnt, and only at the start."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from builders import keep_random_weights
from PIL import Image

from certus.config import decide, resolve
from certus.data import load
from certus.data.batches import Batches
from certus.errors import UsageError
from certus.training import guessing
from certus.training.build import build
from certus.training.guessing import guessed_labels, propagated
from certus.training.planning import complete

NAME = "efficientnet-lite0"


def clusters(each, spread=0.1, seed=0):
    """Points around three directions; and which."""
    random = torch.Generator().manual_seed(seed)
    truth = torch.arange(3).repeat(each)
    return torch.eye(3)[truth] + spread * torch.randn(3 * each, 3, generator=random), truth


def test_a_label_travels_through_its_cluster():
    x, truth = clusters(30)
    labels = torch.full_like(truth, -1)
    labels[:3] = truth[:3]
    guess, certainty = propagated(x, labels, 3)
    assert torch.equal(guess, truth)
    assert (certainty > 0).all()


def test_a_point_between_two_clusters_is_less_certain():
    x, truth = clusters(30)
    x = torch.cat([x, torch.tensor([[1.0, 1.0, 0.0]])])
    labels = torch.full((91,), -1)
    labels[:3] = truth[:3]
    certainty = propagated(x, labels, 3)[1]
    assert certainty[-1] < certainty[:-1].quantile(0.05)


@pytest.fixture(autouse=True)
def weights(tmp_path, monkeypatch):
    monkeypatch.setenv("CERTUS_WEIGHTS", str(tmp_path / "weights"))
    monkeypatch.setenv("CERTUS_CACHE", str(tmp_path / "cache"))
    keep_random_weights()


@pytest.fixture
def photos(tmp_path):
    random = np.random.default_rng(0)
    for name, level in {"bright": 180, "dark": 60}.items():
        for part, count in ((name, 6), ("unlabelled", 10)):
            folder = tmp_path / "photos" / part
            folder.mkdir(parents=True, exist_ok=True)
            for i in range(count):
                pixels = random.integers(level - 40, level + 40, (32, 32, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{name}-{i}.png")
    return str(tmp_path / "photos")


def given(photos, **settings):
    sizes = {"labelled_batch": 4, "unlabelled_batch": 8, "steps": 6, "warm_up": 0.5, "threads": 1, "flip": False}
    return {"data": photos, "network": NAME, "method": "mean-teacher", "validation": 2, **sizes} | settings


def test_the_most_certain_half_of_the_unlabelled_pictures_is_guessed(photos, monkeypatch):
    run = build(complete(resolve(given(photos))))
    new = (run.guesses >= 0) & (run.labels < 0)
    assert new.sum() == 10
    assert set(new.nonzero()[:, 0].tolist()) <= set(run.split.unlabelled.tolist())
    assert torch.equal(run.guesses[run.split.labelled], run.labels[run.split.labelled])
    monkeypatch.setattr(guessing, "MOST", 6)
    assert (guessed_labels(run.data, run.config, run.split, run.labels) >= 0).sum() == len(run.split.labelled) + 3


def test_brightness_is_guessed(photos):
    run = build(complete(resolve(given(photos))))
    level = run.data.train.images.float().mean((1, 2, 3))
    right = (run.guesses == 0) == (level > 120)  # bright is class 0
    assert right[run.guesses >= 0].sum() >= 18  # of 20, with random weights


def test_the_warm_up_learns_them_and_nothing_after_it(photos):
    run = build(complete(resolve(given(photos))))
    for number in range(6):
        batch = run.step(number).batch
        guessed = (run.labels[batch.index] < 0) & (batch.labels >= 0)
        assert guessed.sum() == (9 if number < 3 else 0)
        assert (batch.labels[: batch.labelled] >= 0).all()


def test_few_labels_decide(photos):
    data = load(photos)
    assert decide(resolve(given(photos)), data).guess is True
    many = replace(data, train=replace(data.train, labels=torch.arange(len(data.train)) % 2))
    assert decide(resolve(given(photos)), many).guess is False  # nothing is unlabelled
    assert decide(resolve(given(photos, guess=False)), data).guess is False
    assert resolve(given(photos, network="sprint")).guess is False
    assert resolve(given(photos, method="supervised", warm_up=0.0)).guess is False


@pytest.mark.parametrize("other", [{"network": "sprint"}, {"depth": "head"}, {"warm_up": 0.0}])
def test_where_nothing_learns_guesses_they_are_refused(photos, other):
    with pytest.raises(UsageError, match="`guess` would change nothing"):
        resolve(given(photos, guess=True) | other)


def test_batches_of_a_warm_up_without_guesses_are_as_they_were():
    plain = Batches(torch.arange(5), torch.arange(5, 20), (4, 8), 0)
    assert set(plain.warm(0).tolist()) == set(range(5))
    mixed = Batches(torch.arange(5), torch.arange(5, 20), (4, 8), 0, guessed=torch.tensor([7, 9]))
    assert plain.warm(0)[:3].tolist() == mixed.warm(0)[:3].tolist()
    assert set(mixed.warm(0)[3:].tolist()) == {7, 9}


def test_a_network_that_learnt_guesses_is_no_witness(photos):
    assert not build(complete(resolve(given(photos)))).method.witnesses
    assert build(complete(resolve(given(photos, guess=False)))).method.witnesses
