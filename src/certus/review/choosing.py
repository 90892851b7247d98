"""What to label next: pictures that the model is unsure of, and that differ from each other and from labelled ones."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certus.errors import UsageError, unknown
from certus.randomness import seed_of

STRATEGIES = ("certus", "uncertain", "random")
SHARE, MOST = 0.5, 20_000  # of the unlabelled pictures the most uncertain are candidates: this share, at most so many
SLICE = 1 << 24  # numbers that are in memory at a time, beside the features
Array = NDArray[np.float64]


def label_next(
    uncertainty: ArrayLike,
    features: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    n: int = 50,
    strategy: str = "certus",
    seed: int = 0,
) -> NDArray[np.int64]:
    """The pictures that a person should label next, best first.

    Parameters
    ----------
    uncertainty : array of shape (N,)
        Larger means less sure, such as `answers.uncertainty[answers.metric]` of a `certus.Prediction`.
    features : array of shape (N, D)
        Vectors that are near each other where pictures are alike; only the strategy certus needs them.
    labels : array of shape (N,)
        −1 for a picture without a label; the others are never chosen. Without it, no picture is labelled.
    n : int
        How many; fewer if there are not so many.
    strategy : str
        certus (uncertain and different), uncertain (the most uncertain) or random.
    seed : int
        Of random.

    Returns
    -------
    array of shape (n,)
        Their positions.

    Examples
    --------
    >>> import certus
    >>> certus.label_next([0.1, 0.9, 0.9, 0.8], [[0.0], [1.0], [1.0], [5.0]], [0, -1, -1, -1], n=2).tolist()
    [3, 1]
    """
    u, known = checked(uncertainty, labels)
    if strategy not in STRATEGIES:
        raise unknown("strategy", strategy, STRATEGIES)
    if n < 1:
        raise UsageError(f"`n` must be at least 1, but is {n}.")
    free = np.flatnonzero(~known)
    if strategy == "random":
        return np.random.default_rng(seed_of(seed, "label next")).permutation(free)[:n]
    likely = candidates(u, known, n)
    if strategy == "uncertain":
        return likely[:n]
    if features is None:
        raise UsageError("The strategy certus needs `features`: give them, or use the strategy uncertain.")
    x = np.asarray(features, dtype=np.float32)
    if x.ndim != 2 or len(x) != len(u):
        raise UsageError(f"`features` must have the shape ({len(u)}, D), but has {x.shape}.")
    return likely[spread_out(x[likely], u[likely], x[known], n)]


def checked(uncertainty: ArrayLike, labels: ArrayLike | None) -> tuple[Array, NDArray[np.bool_]]:
    """The uncertainty, and which pictures have a label."""
    u = np.asarray(uncertainty, dtype=np.float64)
    if u.ndim != 1 or not np.isfinite(u).all():
        raise UsageError("`uncertainty` must be one finite number for each picture.")
    known = np.zeros(len(u), bool) if labels is None else np.asarray(labels) >= 0
    if known.shape != u.shape:
        raise UsageError(f"`labels` must have the shape ({len(u)},), but has {known.shape}.")
    return u, known


def candidates(uncertainty: Array, known: NDArray[np.bool_], n: int) -> NDArray[np.int64]:
    """The most uncertain of the pictures without a label, in that order: enough to choose n from."""
    free = np.flatnonzero(~known)
    order = free[np.argsort(-uncertainty[free], kind="stable")]
    return order[: max(n, min(MOST, round(SHARE * len(order))))]


def spread_out(x: NDArray[np.float32], weight: Array, fixed: NDArray[np.float32], n: int) -> NDArray[np.int64]:
    """Greedy k-centre: n rows of x, one after the other, each with the largest weight · d².

    d is its distance to the nearest row that is chosen already or `fixed`. Ties go to the first row.
    """
    apart = nearest_squares(x, fixed) if len(fixed) else np.full(len(x), np.inf)
    weight = weight - min(0.0, float(weight.min(initial=0.0)))
    chosen: list[int] = []
    free = np.ones(len(x), bool)
    for _ in range(min(n, len(x))):
        worth = weight * np.where(np.isfinite(apart), apart, 1.0)  # before the first there is no distance
        i = int(np.where(free, worth, -1.0).argmax())
        chosen.append(i)
        free[i] = False
        apart = np.minimum(apart, squares(x, x[i]))
    return np.array(chosen, dtype=np.int64)


def squares(x: NDArray[np.float32], y: NDArray[np.float32]) -> Array:
    """(N,) the squared distance of each row to one vector."""
    step = max(1, SLICE // max(1, x.shape[1]))
    parts = [np.square(x[i : i + step] - y, dtype=np.float32).sum(1) for i in range(0, len(x), step)]
    return np.concatenate(parts).astype(np.float64)


def nearest_squares(x: NDArray[np.float32], others: NDArray[np.float32]) -> Array:
    """(N,) the squared distance of each row to the nearest of `others`."""
    lengths = np.square(others).sum(1)
    step = max(1, SLICE // len(others))
    parts = [
        (lengths - 2 * (part @ others.T)).min(1) + np.square(part).sum(1)
        for part in (x[i : i + step] for i in range(0, len(x), step))
    ]
    return np.maximum(np.concatenate(parts), 0.0).astype(np.float64)
