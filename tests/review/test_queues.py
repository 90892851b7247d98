"""The queues of a run: on a folder whose labels change, and on a data set whose hidden labels stay hidden."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from builders import keep_random_weights
from PIL import Image

import certus
import certus.data
from certus.data import Dataset
from certus.data.descriptors import describe
from certus.errors import UsageError
from certus.review import reviewed
from certus.review.queues import Look, look, nearest, suspects, to_accept, to_label
from certus.review.reviewed import review

QUICK = {"steps": 30, "width": 4, "threads": 1, "labelled_batch": 10, "unlabelled_batch": 20}


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bright and dark pictures with a table of labels; two labels are wrong."""
    folder, random = tmp_path_factory.mktemp("review") / "photos", np.random.default_rng(0)
    folder.mkdir()
    lines = ["file,label"]
    for i in range(90):
        bright = i % 2
        pixels = random.integers(0, 60, (16, 16, 3)) + 180 * bright * (np.arange(16) < 8)[:, None, None]
        Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{i:02}.png")
        if i < 40:
            lines.append(f"{i:02}.png,{('dark', 'bright')[bright if i not in (3, 8) else 1 - bright]}")
    (folder / "labels.csv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def run(photos: Path) -> Path:
    certus.train(photos, method="supervised", network="mlp", out=photos.parent / "run", validation=10, size=16, **QUICK)
    return photos.parent / "run"


@pytest.fixture(autouse=True)
def data_are_read_again() -> None:
    certus.data.load.cache_clear()
    certus.data._opened.clear()


@pytest.fixture(scope="module")
def seen(run: Path) -> Look:
    return look(run, n=7)


def test_a_look_names_the_pictures_and_the_labels(seen: Look, photos: Path) -> None:
    assert seen.classes == ("bright", "dark")
    assert seen.pictures == tuple(sorted(p.name for p in photos.glob("*.png")))
    assert (seen.labels[:40] >= 0).all()  # those for validation too
    assert (seen.labels[40:] == -1).all()
    assert seen.classes[seen.labels[3]] == "dark"


def test_pictures_to_label_have_no_label_and_are_not_repeated(seen: Look) -> None:
    chosen = [item.picture for item in seen.next]
    assert len(set(chosen)) == 7
    assert min(chosen) >= 40
    for item in seen.next:
        assert 0 <= item.sure <= 1
        assert seen.classes[item.answer] in item.reason
        assert item.given is None


def test_wrong_labels_are_suspect_and_shown_beside_right_ones(seen: Look) -> None:
    first = seen.suspects[0]
    assert first.picture in (3, 8)
    assert first.given == seen.labels[first.picture] != first.answer
    assert {int(seen.labels[i]) for i in first.like_given} == {first.given}
    assert {int(seen.labels[i]) for i in first.like_answer} == {first.answer}
    assert len(first.like_given) == len(first.like_answer) == 4
    assert not {first.picture, 3, 8} & {*first.like_given, *first.like_answer}
    assert f"labelled {seen.classes[first.given]}" in first.reason


def test_answers_to_accept_are_sure_and_most_certain_first(seen: Look, run: Path) -> None:
    assert seen.accept
    assert all(item.sure >= 0.5 and item.picture >= 40 for item in seen.accept)
    found = review(run)
    ranks = {int(picture): rank for picture, rank in zip(found.free, found.answers.rank(), strict=True)}
    order = [ranks[item.picture] for item in seen.accept]
    assert order == sorted(order)


@pytest.mark.parametrize("strategy", ["uncertain", "random"])
def test_other_strategies(run: Path, strategy: str) -> None:
    found = review(run, draws=0)
    chosen = [item.picture for item in to_label(found, 5, strategy)]
    assert len(set(chosen)) == 5
    if strategy == "uncertain":
        p = certus.load(run).predict(found.data.train.images[found.free], draws=0).probabilities
        gaps = {int(i): abs(float(row[0] - row[1])) for i, row in zip(found.free, p, strict=True)}
        assert chosen == sorted(gaps, key=lambda i: (gaps[i], i))[:5]


def test_labels_and_classes_that_came_since_are_known(run: Path, photos: Path) -> None:
    table = photos / "labels.csv"
    before = table.read_text()
    try:
        table.write_text(before + "41.png,bright\n42.png,grey\n44.png,grey\n")
        found = review(run, draws=0)
        assert found.classes == ("bright", "dark", "grey")
        assert found.labels[[0, 1, 41, 42, 44, 43]].tolist() == [1, 0, 0, 2, 2, -1]
        chosen = {item.picture for item in to_label(found, 50)}
        assert chosen == set(range(40, 90)) - {41, 42, 44}
        assert {3, 8} & {item.picture for item in suspects(found)}
    finally:
        table.write_text(before)


def test_hidden_labels_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "run"
    certus.train(
        "digits", method="mean-teacher", labels=60, validation=10, label_noise=0.2, warm_up=0.5, out=out, **QUICK
    )
    honest = look(out, n=6)
    found = review(out)
    assert found.model.witnesses
    assert (honest.labels >= 0).sum() == 70
    noisy = (honest.labels >= 0) & (honest.labels != found.data.train.labels.numpy())
    assert 4 <= noisy.sum() <= 12  # the run's noise is shown, not the truth

    def garbled(*words: object) -> Dataset:
        data = certus.data.load(*words)  # type: ignore[arg-type]
        hidden = torch.from_numpy(honest.labels < 0)
        labels = torch.where(hidden, (data.train.labels + 3) % 10, data.train.labels)
        return replace(data, train=replace(data.train, labels=labels))

    split = certus.config.split_of(found.config, found.data)
    monkeypatch.setattr(reviewed, "load_data", garbled)
    monkeypatch.setattr(reviewed, "split_of", lambda *_: split)
    monkeypatch.setattr(Dataset, "fingerprint", found.data.fingerprint)
    again = look(out, n=6)
    assert np.array_equal(again.labels, honest.labels)
    assert (again.next, again.suspects, again.accept) == (honest.next, honest.suspects, honest.accept)


def test_the_witness_is_asked_too(tmp_path: Path) -> None:
    out = tmp_path / "run"
    certus.train("digits", method="mean-teacher", labels=40, warm_up=0.5, out=out, **QUICK)
    found = review(out)
    model, images = found.model, found.data.train.images[found.free]
    means = [model.mean_answer(nets, images).numpy() for nets in (model.nets, model.witnesses)]
    np.testing.assert_allclose(found.opinions, (means[0] + means[1]) / 2, atol=1e-5)
    assert not np.allclose(found.opinions, found.answers.probabilities, atol=1e-3)
    assert found.answers.metric == "witness"


def test_a_data_set_whose_labels_are_all_known(tmp_path: Path) -> None:
    certus.train("moons", method="supervised", labels=0, out=tmp_path / "run", steps=5, threads=1)
    found = review(tmp_path / "run")
    assert len(found.free) == 0
    assert to_label(found, 5) == to_accept(found) == ()
    assert [x.shape for x in found.unlearnt_features(np.arange(3))] == [(3, 2)]


def test_data_that_changed_are_refused_if_the_run_knew_some_of_its_labels(photos: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(photos, tmp_path / "photos")
    certus.train(
        copy, method="supervised", labels=10, validation=0, network="mlp", out=tmp_path / "run", size=16, **QUICK
    )
    assert (review(tmp_path / "run").labels >= 0).sum() == 10
    (copy / "41.png").unlink()
    certus.data.load.cache_clear()
    certus.data._opened.clear()
    with pytest.raises(UsageError, match=r"has changed since the run in .* began"):
        review(tmp_path / "run")


@pytest.fixture
def small_photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Sixteen pictures of 32 pixels, ten of them labelled, and random weights in the place of ImageNet's."""
    monkeypatch.setenv("CERTUS_WEIGHTS", str(tmp_path / "weights"))
    monkeypatch.setenv("CERTUS_CACHE", str(tmp_path / "cache"))
    keep_random_weights()
    random = np.random.default_rng(0)
    for i in range(16):
        path = tmp_path / "photos" / (f"class {i % 2}" if i < 10 else "unlabeled") / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(path)
    return tmp_path / "photos"


@pytest.mark.parametrize("network", ["mlp", "efficientnet-lite0"])
def test_features_for_suspects_come_from_weights_that_have_not_learnt_the_labels(
    network: str, small_photos: Path, tmp_path: Path
) -> None:
    settings = {"steps": 2, "threads": 1, "method": "supervised", "validation": 0, "size": 32, "network": network}
    settings |= {"depth": "head", "flip": False} if network != "mlp" else {}
    model = certus.train(small_photos, out=tmp_path / "run", **settings)
    found = review(tmp_path / "run", draws=0)
    rows = np.arange(4)
    width = describe(found.data.train.images, torch.arange(4)).shape[1]
    assert [x.shape for x in found.unlearnt_features(rows)] == [(4, 512), (4, width), (4, 1280), (4, 512 + 1280)]
    assert (found.model.trunk is None) == (network == "mlp")
    p = model.predict(found.data.train.images[found.free], draws=0).probabilities
    np.testing.assert_allclose(found.answers.probabilities, p, atol=1e-2)  # remembered features have half precision
    assert len(to_label(found, 3)) == 3
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reviewed, "MOST_EMBEDDED", 3)
        assert (len(found.unlearnt_features(rows)) == 2) == (network == "mlp")


def test_the_nearest_rows() -> None:
    x = np.array([[0.0], [1.0], [3.0], [0.5], [9.0]], np.float32)
    assert nearest(x, 0, np.array([True, True, True, False, True]), 2).tolist() == [1, 2]
