"""What to label next: pictures between two classes, one of each kind, and unlike those that are labelled already.

The most uncertain pictures alone are often near-duplicates. Those that are farthest from each other (k-centre) are
often outliers. The strategy certus takes the most uncertain share and divides it into n clusters: k-means, weighted by
uncertainty, where the labelled pictures are clusters of their own, which stay where they are. It offers the picture in
the middle of each. docs/review.md compares the strategies.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certus.errors import UsageError, unknown
from certus.randomness import seed_of

STRATEGIES = ("certus", "uncertain", "random")
SHARE, MOST = 0.3, 20_000  # of the unlabelled pictures the most uncertain are candidates: this share, at most so many
LEAST = 4  # candidates for each picture that is wanted
FIXED = 5_000  # labelled pictures that are looked at
WIDTH = 128  # longer features are projected
ROUNDS = 15  # of k-means
SLICE = 1 << 24  # distances that are in memory at a time
Floats = NDArray[np.float32]


def label_next(
    probabilities: ArrayLike,
    features: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    n: int = 50,
    strategy: str = "certus",
    seed: int = 0,
) -> NDArray[np.int64]:
    """The pictures that a person should label next, best first.

    Parameters
    ----------
    probabilities : array of shape (N, C)
        The model's answers. A picture whose two most likely classes are equally likely is the most uncertain.
    features : array of shape (N, D)
        Vectors that are near each other where pictures are alike; only the strategy certus needs them.
    labels : array of shape (N,)
        −1 for a picture without a label; the others are never chosen. Without it, no picture is labelled.
    n : int
        How many; fewer if there are not so many.
    strategy : str
        certus (uncertain, and of every kind), uncertain (the most uncertain) or random.
    seed : int
        Of the start of the clusters, and of random.

    Returns
    -------
    array of shape (n,)
        Their positions.

    Examples
    --------
    >>> import certus
    >>> p = [[0.9, 0.1], [0.5, 0.5], [0.5, 0.5], [0.4, 0.6]]
    >>> sorted(certus.label_next(p, features=[[0.0], [1.0], [1.0], [5.0]], n=2).tolist())
    [1, 3]
    >>> certus.label_next(p, strategy="uncertain", n=2).tolist()
    [1, 2]
    """
    p, known = checked(probabilities, labels)
    if strategy not in STRATEGIES:
        raise unknown("strategy", strategy, STRATEGIES)
    if n < 1:
        raise UsageError(f"`n` must be at least 1, but is {n}.")
    if strategy == "random":
        return numbers(seed).permutation(np.flatnonzero(~known))[:n]
    if strategy == "uncertain":
        return most_uncertain(ambivalence(p), known, n)
    if features is None:
        raise UsageError("The strategy certus needs `features`: give them, or use the `strategy` uncertain.")
    x = np.asarray(features, dtype=np.float32)
    if x.ndim != 2 or len(x) != len(p) or not np.isfinite(x).all():
        raise UsageError(f"`features` must be finite numbers of shape ({len(p)}, D), but their shape is {x.shape}.")
    return of_every_kind(ambivalence(p), known, lambda rows: x[rows], n, seed)


def numbers(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed_of(seed, "label next"))


def checked(probabilities: ArrayLike, labels: ArrayLike | None) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The probabilities, and which pictures have a label."""
    p = np.asarray(probabilities, dtype=np.float64)
    if p.ndim != 2 or p.shape[1] < 2 or not ((p >= 0) & (p <= 1)).all():
        raise UsageError(f"`probabilities` must be numbers from 0 to 1 of shape (N, C), but their shape is {p.shape}.")
    known = np.zeros(len(p), bool) if labels is None else np.asarray(labels) >= 0
    if known.shape != (len(p),):
        raise UsageError(f"`labels` must have the shape ({len(p)},), but has {known.shape}.")
    return p, known


def ambivalence(p: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """(N,) 1 − (p₁ − p₂), p₁ and p₂ the largest two of each row: 1 where they are equal, 0 where one is certain."""
    second, first = np.partition(p, -2, axis=1)[:, -2:].T
    return 1.0 - (first.astype(np.float64) - second)


def most_uncertain(doubt: NDArray[np.float64], known: NDArray[np.bool_], n: int) -> NDArray[np.int64]:
    """The n most uncertain of the pictures without a label, in that order; equal ones in theirs."""
    free = np.flatnonzero(~known)
    return free[np.argsort(-doubt[free], kind="stable")[:n]]


def of_every_kind(
    doubt: NDArray[np.float64],
    known: NDArray[np.bool_],
    features: Callable[[NDArray[np.int64]], Floats],
    n: int,
    seed: int,
) -> NDArray[np.int64]:
    """The strategy certus. `features` gives those of the pictures at these positions, and is called once."""
    random = numbers(seed)
    likely = most_uncertain(doubt, known, max(LEAST * n, min(MOST, round(SHARE * int((~known).sum())))))
    fixed = random.permutation(np.flatnonzero(known))[:FIXED]
    x = narrowed(features(np.concatenate([likely, fixed])))
    return likely[middles(x[: len(likely)], doubt[likely], x[len(likely) :], n, random)]


def narrowed(x: Floats) -> Floats:
    """Features in WIDTH random directions: distances stay about as they are, and take less time."""
    if x.shape[1] <= WIDTH:
        return x
    directions = numbers(0).normal(scale=WIDTH**-0.5, size=(x.shape[1], WIDTH))
    return x @ directions.astype(np.float32)


def middles(
    x: Floats, weight: NDArray[np.float64], fixed: Floats, n: int, random: np.random.Generator
) -> NDArray[np.int64]:
    """The rows of x in the middle of n clusters, heaviest cluster first.

    Weighted k-means. A row that is nearer to a row of `fixed` than to every centre belongs to none.
    """
    if n >= len(x):
        return np.argsort(-weight, kind="stable")
    weight = weight + 1e-9 * (weight.max() or 1.0)  # rows without weight are the last resort, not an error
    to_fixed = nearest(x, fixed)[1] if len(fixed) else np.full(len(x), np.inf)
    centres = x[start(x, weight, to_fixed, n, random)]
    for _ in range(ROUNDS):
        centres = moved(x, weight, centres, owners(x, centres, to_fixed))
    owner = owners(x, centres, to_fixed)
    heaviest = np.argsort(-np.bincount(owner + 1, weight, n + 1)[1:], kind="stable")
    free, chosen = np.ones(len(x), bool), []
    for j in heaviest:
        i = int(np.where(free, squares(x, centres[j]), np.inf).argmin())
        free[i] = False
        chosen.append(i)
    return np.array(chosen, dtype=np.int64)


def start(
    x: Floats, weight: NDArray[np.float64], to_fixed: NDArray[np.float64], n: int, random: np.random.Generator
) -> list[int]:
    """n rows, one after the other, each with probability ∝ weight · d², d the distance to the nearest one before or
    to `fixed` (k-means++)."""
    chosen: list[int] = []
    apart = to_fixed
    for _ in range(n):
        worth = weight * (apart if np.isfinite(apart).all() else 1.0)
        worth = worth if worth.sum() > 0 else weight  # all that is left are copies
        chosen.append(int(random.choice(len(x), p=worth / worth.sum())))
        apart = np.minimum(apart, squares(x, x[chosen[-1]]))
    return chosen


def owners(x: Floats, centres: Floats, to_fixed: NDArray[np.float64]) -> NDArray[np.int64]:
    """(N,) the nearest centre of each row; −1 if a fixed one is nearer."""
    which, apart = nearest(x, centres)
    return np.where(apart <= to_fixed, which, -1)


def moved(x: Floats, weight: NDArray[np.float64], centres: Floats, owner: NDArray[np.int64]) -> Floats:
    """Each centre in the weighted mean of its rows; one without rows stays."""
    order = np.argsort(owner, kind="stable")
    order = order[owner[order] >= 0]
    owned, first = np.unique(owner[order], return_index=True)
    made = centres.copy()
    if len(owned):
        w = weight[order].astype(np.float32)
        made[owned] = np.add.reduceat(x[order] * w[:, None], first) / np.add.reduceat(w, first)[:, None]
    return made


def squares(x: Floats, y: Floats) -> NDArray[np.float64]:
    """(N,) the squared distance of each row to one vector."""
    return nearest(x, y[None])[1]


def nearest(x: Floats, others: Floats) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """(N,) the nearest of `others` to each row, and its squared distance, of few rows at a time."""
    lengths, step = np.square(others).sum(1), max(1, SLICE // len(others))
    which, apart = np.empty(len(x), np.int64), np.empty(len(x))
    for i in range(0, len(x), step):
        part = x[i : i + step]
        d = lengths - 2 * (part @ others.T)  # (rows, others), without the rows' own lengths
        which[i : i + step] = d.argmin(1)
        apart[i : i + step] = d.min(1) + np.square(part).sum(1)
    return which, np.maximum(apart, 0.0)
