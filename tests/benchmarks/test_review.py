"""benchmarks/review.py: simulated persons on made features, what a stopped run leaves, what docs/review.md says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import review
import review_report
from resumable import read
from review import WAYS, Cell, errors_of_rounds, measured, most_similar, spoiled
from review_data import Frozen, components

ROOT = Path(__file__).parents[2]


def clusters(seed: int = 0, classes: int = 4, width: int = 6) -> Frozen:
    """Classes around random centres; classes 0 and 1 are near each other."""
    random = np.random.default_rng(seed)
    centres = 3 * random.normal(size=(classes, width))
    centres[1] = centres[0] + 1
    y, test_y = (random.integers(0, classes, n) for n in (400, 200))
    x, test_x = (centres[labels] + random.normal(size=(len(labels), width)) for labels in (y, test_y))
    return Frozen(x.astype(np.float32), y, test_x.astype(np.float32), test_y)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(review, "EACH", 8)
    monkeypatch.setattr(review, "ROUNDS", 2)
    monkeypatch.setattr(review, "LABELLED", 300)


@pytest.mark.parametrize("strategy", review.STRATEGIES)
def test_a_person_starts_with_the_same_labels_whatever_the_strategy(strategy: str) -> None:
    data = clusters()
    errors = errors_of_rounds(data, strategy, 0)
    assert len(errors) == 3
    assert errors[0] == errors_of_rounds(data, "random", 0)[0]
    assert errors[-1] < 30
    assert errors == errors_of_rounds(data, strategy, 0)


def test_only_the_answers_of_the_person_are_read() -> None:
    """The labels of pictures that nobody was asked for change nothing, nor do test labels change what is chosen."""
    data, asked = clusters(), []
    honest = review.label_next

    def spy(*words: object) -> np.ndarray:
        asked.append(honest(*words))  # type: ignore[arg-type]
        return asked[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(review, "label_next", spy)
        errors_of_rounds(data, "certus", 0)
        first, asked[:] = list(asked), []
        errors_of_rounds(Frozen(data.x, data.y, data.test_x, (data.test_y + 1) % 4), "certus", 0)
    assert [a.tolist() for a in first] == [a.tolist() for a in asked]
    assert len(set(np.concatenate(first).tolist())) == 16


def test_labels_are_spoiled_as_the_noise_says() -> None:
    data = clusters()
    assert most_similar(data)[:2].tolist() == [1, 0]
    for noise, share in (("random 10 %", 30), ("random 30 %", 90), ("similar 20 %", 60)):
        _, labels, wrong = spoiled(data, noise, 3)
        assert (len(labels), wrong.sum()) == (300, share)
        again = spoiled(data, noise, 3)
        assert np.array_equal(labels, again[1])
    assert np.array_equal(spoiled(data, "random 10 %", 3)[0], spoiled(data, "similar 20 %", 3)[0])


@pytest.mark.parametrize("way", WAYS)
def test_every_way_finds_most_random_mistakes(way: str) -> None:
    if "cleanlab" in way:
        pytest.importorskip("cleanlab", reason="cleanlab is not installed")
    precision, recall, average = measured(clusters(), way, "random 20 %", 0)
    assert min(precision, recall) > 50
    assert average > 70


def test_components_keep_distances() -> None:
    random = np.random.default_rng(0)
    x, test = random.normal(size=(50, 5)), random.normal(size=(20, 5))
    mine, theirs = components(x, test)
    ratio = np.linalg.norm(test[1:] - test[0], axis=1) / np.linalg.norm(theirs[1:] - theirs[0], axis=1)
    assert np.ptp(ratio) < 1e-4
    assert np.square(mine).mean() == pytest.approx(1, abs=1e-4)


def test_a_stopped_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(review, "frozen", lambda *_: clusters())
    monkeypatch.setattr(review, "SETS", ("svhn",))
    monkeypatch.setattr(review, "NOISES", ("random 10 %",))
    monkeypatch.setattr(review, "WAYS", {"certus": review.by_certus, "training loss": review.by_loss})
    review.run(tmp_path, tmp_path, 2)
    whole = {name: (tmp_path / f"{name}.csv").read_text() for name in ("next", "suspects")}
    rounds, suspects = read(tmp_path / "next.csv"), read(tmp_path / "suspects.csv")
    assert (len(rounds), len(suspects)) == (6, 4)
    assert Cell.of(suspects[0]) == Cell("svhn", "certus", 0, "random 10 %")
    (tmp_path / "next.csv").write_text(whole["next"][:-20])
    (tmp_path / "suspects.csv").write_text(whole["suspects"][:-5])
    review.run(tmp_path, tmp_path, 2)
    assert {name: (tmp_path / f"{name}.csv").read_text() for name in whole} == whole
    figure = review_report.draw(rounds, suspects)
    assert [axes.get_title(loc="left") for axes in figure.axes[:3]] == ["SVHN", "CIFAR-10", "Fashion-MNIST"]


def test_the_page_has_the_tables_of_the_rows() -> None:
    folder, page = ROOT / "results" / "review", (ROOT / "docs" / "review.md").read_text()
    tables = review_report.tables(read(folder / "next.csv"), read(folder / "suspects.csv"))
    for title, table in tables.items():
        assert title in page
        assert table.markdown() in page
