"""Suspect labels: those that a model contradicts which has not seen them.

Confident learning says how many: t_c = mean of p_ic over the pictures with label c. Class c is confident for picture i
if p_ic ≥ t_c. A label is contradicted if it is not the confident class (with several: the most likely class), nor the
most likely one. The order says which: by log p of the most likely other class − log p of the label. What is plainly
another class (p ≥ 0.8) is always among them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.linear_model import LogisticRegression

from certus.errors import UsageError, unknown
from certus.randomness import seed_of

RULES = ("ranked", "confident")
PLAIN = 0.8  # the probability of another class that makes a label suspect in any case
NEAR = 1e-6  # probabilities that differ by less are equal
ENOUGH = 2_000  # labels by which one kind of features is chosen
FOLDS, PENALTY = 5, 1.0  # the penalty is for features of length 1 (docs/review.md)
Array = NDArray[np.float64]


def find_suspects(probabilities: ArrayLike, labels: ArrayLike, rule: str = "ranked") -> NDArray[np.int64]:
    """The pictures whose label is probably wrong, most suspect first.

    Parameters
    ----------
    probabilities : array of shape (N, C)
        Of a model that has not seen the label of the picture in question, as `certus.held_out_probabilities` gives.
    labels : array of shape (N,)
        0 … C − 1, or −1 for a picture without a label.
    rule : str
        confident: the labels that confident learning finds. ranked: as many, but those whose label is the least likely
        beside another class, and every label beside which another class has a probability of 0.8. More of these are
        wrong (docs/review.md).

    Returns
    -------
    array
        Their positions.

    Examples
    --------
    >>> import certus
    >>> certus.find_suspects([[0.9, 0.1], [0.8, 0.2], [0.95, 0.05], [0.2, 0.8]], [0, 0, 1, 1]).tolist()
    [2]
    """
    p, y = checked(probabilities, labels)
    if rule not in RULES:
        raise unknown("rule", rule, RULES)
    rows = np.flatnonzero(y >= 0)
    p, y = p[rows], y[rows]
    found = contradicted(p, y)
    order = np.argsort(-log_odds(p, y), kind="stable")
    if rule == "ranked":
        many = found.sum()
        found = (p.argmax(1) != y) & (p.max(1, initial=0.0) >= PLAIN)
        found[order[:many]] = True
    return rows[order[found[order]]]


def checked(probabilities: ArrayLike, labels: ArrayLike) -> tuple[Array, NDArray[np.int64]]:
    p, y = np.asarray(probabilities, dtype=np.float64), np.asarray(labels, dtype=np.int64)
    if p.ndim != 2 or y.shape != p.shape[:1]:
        raise UsageError(f"`probabilities` (N, C) and `labels` (N,) do not fit: their shapes are {p.shape}, {y.shape}.")
    if not ((p >= 0) & (p <= 1)).all():
        raise UsageError("`probabilities` must be numbers from 0 to 1.")
    if len(y) and not -1 <= y.min() <= y.max() < p.shape[1]:
        raise UsageError(f"`labels` must be −1 … {p.shape[1] - 1}, but one is {y.max() if y.max() > 0 else y.min()}.")
    return p, y


def contradicted(p: Array, y: NDArray[np.int64]) -> NDArray[np.bool_]:
    """(N,) whether the rule above finds the label suspect."""
    confident = p >= thresholds(p, y) - NEAR
    count = confident.sum(1)
    guess = np.where(count > 1, p.argmax(1), confident.argmax(1))
    raised = p.copy()
    raised[np.arange(len(y)), y] += NEAR
    return (count > 0) & (guess != y) & (raised.argmax(1) != y)


def log_odds(p: Array, y: NDArray[np.int64]) -> Array:
    """(N,) log p of the most likely other class − log p of the label; probabilities below NEAR count as that."""
    each = np.arange(len(y))
    own, others = p[each, y], p.copy()
    others[each, y] = 0.0
    return np.log(np.maximum(others.max(1), NEAR)) - np.log(np.maximum(own, NEAR))


def thresholds(p: Array, y: NDArray[np.int64]) -> Array:
    """(C,) the mean probability of each class among the pictures with that label; infinite for a class without any."""
    means = [p[y == c, c].mean() if (y == c).any() else np.inf for c in range(p.shape[1])]
    return np.maximum(np.array(means), 2 * NEAR)


def held_out_probabilities(
    features: ArrayLike,
    labels: ArrayLike,
    classes: int | None = None,
    folds: int = FOLDS,
    seed: int = 0,
    cleaned: bool = True,
) -> Array:
    """The answers of logistic regression to labelled pictures that it was not fitted on, fold by fold.

    Parameters
    ----------
    features : array of shape (N, D)
        They must not come from a network that has learnt these labels: it knows the wrong ones by heart.
    labels : array of shape (N,)
        0 … C − 1, or −1 for a picture without a label.
    classes : int
        C; without it, one more than the largest label.
    folds : int
        Parts of the labelled pictures. Each is answered by a model that has seen the others.
    seed : int
        Of the folds.
    cleaned : bool
        Fit a second time, without the labels that the first time finds suspect.

    Returns
    -------
    array of shape (N, C)
        A picture that is alone in its class cannot be checked: its label has probability 1. Every class is equally
        likely for a picture without a label.

    Examples
    --------
    >>> import certus
    >>> p = certus.held_out_probabilities([[0.0], [0.1], [0.2], [1.0], [1.1], [1.2]], [0, 0, 0, 1, 1, 1], folds=3)
    >>> p.argmax(1).tolist()
    [0, 0, 0, 1, 1, 1]
    """
    x, y = np.asarray(features, dtype=np.float32), np.asarray(labels, dtype=np.int64)
    if x.ndim != 2 or y.shape != x.shape[:1] or not np.isfinite(x).all():
        raise UsageError(
            f"`features` (N, D) must be finite and fit `labels` (N,), but their shapes are {x.shape} and {y.shape}."
        )
    if folds < 2:
        raise UsageError(f"`folds` must be at least 2, but is {folds}.")
    known = y >= 0
    if len(np.unique(y[known])) < 2:
        raise UsageError("Labels of at least two classes are needed to find suspect ones.")
    count = int(y.max()) + 1 if classes is None else classes
    p = np.full((len(y), count), 1 / count)
    x, y, fold = scaled(x[known]), y[known], in_folds(y[known], folds, seed)
    p[known] = by_folds(x, y, fold, count, np.ones(len(y), bool))
    if cleaned:
        p[known] = by_folds(x, y, fold, count, trusted(p[known], y))
    return p


def most_telling(
    kinds: Sequence[NDArray[np.float32]], labels: NDArray[np.int64], classes: int, seed: int = 0
) -> NDArray[np.float32]:
    """Of several kinds of features (N, D) the one from which held-out labels are predicted best, by their log p."""
    if len(kinds) == 1:
        return kinds[0]
    some = np.random.default_rng(seed_of(seed, "kinds")).permutation(len(labels))[:ENOUGH]
    y = labels[some]
    if len(np.unique(y)) < 2:
        return kinds[0]

    def likelihood(x: NDArray[np.float32]) -> float:
        p = held_out_probabilities(x[some], y, classes, seed=seed, cleaned=False)
        return float(np.log(np.maximum(p[np.arange(len(y)), y], NEAR)).mean())

    return max(kinds, key=likelihood)


def trusted(p: Array, y: NDArray[np.int64]) -> NDArray[np.bool_]:
    """(N,) which labels are not suspect; all of a class of which fewer than two would be left."""
    kept = ~contradicted(p, y)
    left = np.bincount(y, kept, p.shape[1])
    return kept | (left[y] < 2)


def by_folds(
    x: NDArray[np.float32], y: NDArray[np.int64], fold: NDArray[np.int64], classes: int, used: NDArray[np.bool_]
) -> Array:
    """(N, C) the answers to each fold of a model that was fitted on the `used` pictures of the others."""
    p = np.zeros((len(y), classes))
    for k in np.unique(fold):
        asked, seen = fold == k, used & (fold != k)
        model = LogisticRegression(C=1 / PENALTY, max_iter=300, tol=1e-3).fit(x[seen], y[seen])
        p[np.ix_(asked, model.classes_)] = model.predict_proba(x[asked])
    alone = np.bincount(y, minlength=classes)[y] == 1
    p[alone] = np.eye(classes)[y[alone]]
    return p


def scaled(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Centred, with one deviation for all features, so that a row has length 1 in the mean: angles stay as they are."""
    x = x - x.mean(0)
    size = float(np.sqrt(np.square(x, dtype=np.float64).sum(1).mean()))
    return x / np.float32(size) if size > 0 else x


def in_folds(y: NDArray[np.int64], folds: int, seed: int) -> NDArray[np.int64]:
    """(N,) the fold of each picture: those of a class are shuffled and dealt out in turn, so every fold has each class.

    A class of fewer pictures than folds is missing in some folds, never in all others.
    """
    order = np.random.default_rng(seed_of(seed, "folds")).permutation(len(y))
    order = order[np.argsort(y[order], kind="stable")]
    fold = np.empty(len(y), np.int64)
    fold[order] = np.arange(len(y)) % folds
    return fold
