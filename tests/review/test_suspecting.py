"""Suspect labels: confident learning's rule against cleanlab and a naive loop, cross-validation, planted mistakes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

import certus
from certus.errors import UsageError
from certus.review.suspecting import (
    by_folds,
    contradicted,
    find_suspects,
    in_folds,
    log_odds,
    most_telling,
    scaled,
    trusted,
)

Array = NDArray[Any]


def answers(seed: int, n: int, classes: int, digits: int = 12) -> tuple[Array, Array]:
    """Probabilities, some of them equal, that favour the labels in most rows."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, classes, n)
    p = random.dirichlet(np.full(classes, 0.5), n) + (random.random(n) < 0.7)[:, None] * np.eye(classes)[labels]
    p = np.round(p / p.sum(1, keepdims=True), digits) + 1e-12
    return p / p.sum(1, keepdims=True), labels


def naive(p: Array, labels: Array) -> list[bool]:
    """The rule as the papers write it, picture by picture."""
    classes = p.shape[1]
    t = []
    for c in range(classes):
        own = [row[c] for row, label in zip(p, labels, strict=True) if label == c]
        t.append(max(sum(own) / len(own), 2e-6) if own else math.inf)
    found = []
    for row, label in zip(p, labels, strict=True):
        above = [c for c in range(classes) if row[c] >= t[c] - 1e-6]
        most = int(np.argmax(row))
        guess = None if not above else above[0] if len(above) == 1 else most
        found.append(guess is not None and guess != label and row[label] + 1e-6 < row[most])
    return found


@given(st.integers(0, 10_000), st.integers(2, 60), st.integers(2, 6), st.sampled_from([1, 2, 12]))
@settings(max_examples=150)
def test_the_rule_is_what_a_loop_finds(seed: int, n: int, classes: int, digits: int) -> None:
    p, labels = answers(seed, n, classes, digits)
    assert contradicted(p, labels).tolist() == naive(p, labels)


@given(st.integers(0, 10_000), st.integers(8, 80), st.integers(2, 6), st.sampled_from([1, 2, 12]))
@settings(max_examples=60, deadline=None)
def test_the_rule_is_that_of_cleanlab(seed: int, n: int, classes: int, digits: int) -> None:
    """Exactly its filter "confident_learning", on the same probabilities, also with ties."""
    filters = pytest.importorskip("cleanlab.filter", reason="cleanlab is not installed")
    p, labels = answers(seed, n, classes, digits)
    labels[:classes] = np.arange(classes)
    theirs = filters.find_label_issues(labels, p, filter_by="confident_learning", n_jobs=1)
    ours = find_suspects(p, labels, rule="confident")
    assert sorted(ours.tolist()) == np.flatnonzero(theirs).tolist()
    assert len(find_suspects(p, labels)) >= theirs.sum()


@given(st.integers(0, 10_000), st.sampled_from(["ranked", "confident"]))
def test_suspects_are_contradicted_most_suspect_first_and_never_without_a_label(seed: int, rule: str) -> None:
    p, labels = answers(seed, 50, 4)
    hidden = np.random.default_rng(seed).random(50) < 0.3
    labels[hidden] = -1
    found = find_suspects(p, labels, rule)
    assert not hidden[found].any()
    count = int(contradicted(p[~hidden], labels[~hidden]).sum())
    assert len(found) == count if rule == "confident" else len(found) >= count
    odds = [math.log(max(np.delete(p[i], labels[i]))) - math.log(p[i, labels[i]]) for i in found]
    assert odds == sorted(odds, reverse=True)
    assert all(p[i].argmax() != labels[i] for i in found)
    rest = np.setdiff1d(np.flatnonzero(~hidden), found)
    if rule == "ranked" and count and len(rest):
        assert log_odds(p[rest], labels[rest]).max() <= odds[count - 1] + 1e-9
        assert all(p[i].max() < 0.8 or p[i].argmax() == labels[i] for i in rest)
        assert all(p[i].max() >= 0.8 for i in found[count:])


@given(st.integers(0, 10_000), st.integers(2, 7))
def test_every_fold_has_its_share_of_each_class(seed: int, folds: int) -> None:
    labels = np.random.default_rng(seed).integers(0, 5, 60)
    fold = in_folds(labels, folds, seed)
    counts = np.array([[((labels == c) & (fold == k)).sum() for k in range(folds)] for c in range(5)])
    assert (np.ptp(counts, axis=1) <= 1).all()
    assert not np.array_equal(fold, in_folds(labels, folds, seed + 1))


def test_each_fold_is_answered_by_a_model_of_the_others() -> None:
    random = np.random.default_rng(0)
    x, labels = scaled(random.normal(size=(40, 3)).astype(np.float32)), random.integers(0, 3, 40)
    p = certus.held_out_probabilities(x, labels, folds=4, seed=3, cleaned=False)
    fold = in_folds(labels, 4, 3)
    for k in range(4):
        model = LogisticRegression(max_iter=300, tol=1e-3).fit(x[fold != k], labels[fold != k])
        np.testing.assert_allclose(p[fold == k], model.predict_proba(x[fold == k]), atol=1e-6)


def test_a_label_has_no_influence_on_its_own_probabilities() -> None:
    random = np.random.default_rng(1)
    x, labels = random.normal(size=(30, 3)).astype(np.float32), np.arange(30) % 3
    fold, used = np.arange(30) % 5, np.ones(30, bool)
    before = by_folds(x, labels, fold, 3, used)
    labels[7] = (labels[7] + 1) % 3
    after = by_folds(x, labels, fold, 3, used)
    assert np.array_equal(before[fold == 7 % 5], after[fold == 7 % 5])
    assert not np.array_equal(before, after)


def test_the_second_fit_leaves_out_what_the_first_finds_suspect() -> None:
    p, labels = answers(0, 200, 4)
    kept = trusted(p, labels)
    assert np.array_equal(~kept, contradicted(p, labels))
    lonely = np.where(np.isin(np.arange(200), np.flatnonzero(contradicted(p, labels))[:1]), 3, labels % 3)
    assert trusted(p, lonely)[lonely == 3].all()


@pytest.mark.parametrize("kind", ["random", "similar"])
def test_planted_mistakes_are_found(kind: str) -> None:
    x, truth = load_digits(return_X_y=True)
    random = np.random.default_rng(0)
    wrong = random.permutation(len(truth))[:150]
    labels = truth.copy()
    labels[wrong] = (truth[wrong] + (random.integers(1, 10, 150) if kind == "random" else 1)) % 10
    found = certus.find_suspects(certus.held_out_probabilities(x, labels), labels)
    right = np.isin(found, wrong)
    assert right.mean() > 0.8
    assert right.sum() > 0.7 * len(wrong)
    assert right[:50].mean() > 0.95


def test_the_kind_of_features_that_predicts_held_out_labels_is_taken() -> None:
    random = np.random.default_rng(0)
    labels = np.arange(60) % 3
    noise, telling = random.normal(size=(60, 5)), np.eye(3)[labels] + 0.3 * random.normal(size=(60, 3))
    kinds = [x.astype(np.float32) for x in (noise, telling, noise[:, :2])]
    assert most_telling(kinds, labels, 3) is kinds[1]
    assert most_telling(kinds[:1], labels, 3) is kinds[0]


def test_a_picture_alone_in_its_class_is_not_suspect_and_one_without_a_label_is_not_asked() -> None:
    x = np.array([[0.0], [0.1], [1.0], [1.1], [0.05], [0.5]])
    labels = np.array([0, 0, 1, 1, 3, -1])
    p = certus.held_out_probabilities(x, labels, classes=5, folds=2)
    assert p.shape == (6, 5)
    np.testing.assert_allclose(p.sum(1), 1)
    assert p[4].tolist() == [0, 0, 0, 1, 0]
    assert p[5].tolist() == [0.2] * 5
    assert 4 not in certus.find_suspects(p, labels)


@pytest.mark.parametrize(
    ("function", "arguments", "sentence"),
    [
        (certus.find_suspects, ([[0.5, 0.5]], [2]), "`labels` must be −1 … 1, but one is 2"),
        (certus.find_suspects, ([[0.5, 0.5]], [-2]), "but one is -2"),
        (certus.find_suspects, ([[0.5, 1.5]], [0]), "from 0 to 1"),
        (certus.find_suspects, ([[0.5, 0.5]], [0, 1]), "do not fit"),
        (certus.find_suspects, ([[0.5, 0.5]], [0], "confidant"), "Did you mean 'confident'"),
        (certus.held_out_probabilities, ([[0.0], [1.0]], [0, 0]), "at least two classes"),
        (certus.held_out_probabilities, ([[0.0], [1.0]], [0, 1], None, 1), "`folds` must be at least 2"),
        (certus.held_out_probabilities, ([[0.0]], [0, 1]), "shapes are"),
        (certus.held_out_probabilities, ([[0.0], [np.inf]], [0, 1]), "must be finite"),
    ],
)
def test_bad_input(function: Any, arguments: tuple[Any, ...], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        function(*arguments)
