"""Answers that are certain enough to be looked over twenty at a time, and accepted as labels."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certus.errors import UsageError
from certus.review.choosing import checked

SURE, SHARE = 0.5, 0.5  # networks that learn from smoothed labels are never surer than 0.9 or so


def find_certain(
    probabilities: ArrayLike,
    uncertainty: ArrayLike,
    labels: ArrayLike | None = None,
    sure: float = SURE,
    share: float = SHARE,
) -> NDArray[np.int64]:
    """The pictures without a label whose answer is certain, most certain first.

    Parameters
    ----------
    probabilities : array of shape (N, C)
    uncertainty : array of shape (N,)
        Larger means less sure. It ranks the answers.
    labels : array of shape (N,)
        −1 for a picture without a label; the others are left out.
    sure : float
        The least probability of the answer.
    share : float
        Of the answers of each class, only the most certain are taken: a class that is seldom right does not hide
        behind the others.

    Returns
    -------
    array
        Their positions.

    Examples
    --------
    >>> import certus
    >>> certus.find_certain([[0.99, 0.01], [0.95, 0.05], [0.4, 0.6], [0.0, 1.0]], [0.1, 0.2, 0.9, 0.0]).tolist()
    [3, 0]
    """
    p, known = checked(probabilities, labels)
    u = np.asarray(uncertainty, dtype=np.float64)
    if u.shape != (len(p),) or not np.isfinite(u).all():
        raise UsageError(f"`uncertainty` must be finite numbers of shape ({len(p)},), but its shape is {u.shape}.")
    if not (0 <= sure <= 1 and 0 <= share <= 1):
        raise UsageError(f"`sure` and `share` must be from 0 to 1, but are {sure:g} and {share:g}.")
    order = np.argsort(u, kind="stable")
    order = order[~known[order]]
    answers = p.argmax(1)
    kept = np.zeros(len(u), bool)
    for c in range(p.shape[1]):
        mine = order[answers[order] == c]
        kept[mine[: int(np.ceil(share * len(mine)))]] = True
    return order[(kept & (p.max(1) >= sure))[order]]
