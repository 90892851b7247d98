"""The three queues of a run: what to label next, which labels are suspect, which answers can be accepted."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from certus.review.accepting import find_certain
from certus.review.choosing import ambivalence, label_next, of_every_kind
from certus.review.reviewed import Listen, Reviewed, review
from certus.review.suspecting import find_suspects, held_out_probabilities, most_telling, scaled

ALIKE = 4  # pictures of each class that are shown beside a suspect label


@dataclass(frozen=True)
class Item:
    """A picture in a queue."""

    picture: int  # position in the run's training images
    answer: int  # the model's class for it
    sure: float  # 0 … 1, the probability of that answer; out of sample for suspects
    reason: str  # why it is in this queue
    given: int | None = None  # suspects: the label that it has
    like_given: tuple[int, ...] = ()  # suspects: the nearest pictures that have the given label
    like_answer: tuple[int, ...] = ()  # suspects: the nearest pictures that have the suggested one


@dataclass(frozen=True, eq=False)
class Look:
    """All that a person is shown of a run."""

    classes: tuple[str, ...]
    pictures: tuple[str, ...]  # the path relative to the folder, or "12" for a named data set
    labels: NDArray[np.int64]  # −1: none, as the run knows it
    next: tuple[Item, ...]  # best first
    suspects: tuple[Item, ...]  # most suspect first
    accept: tuple[Item, ...]  # most certain first


def look(
    run: str | Path, n: int = 200, strategy: str = "certus", draws: int = 10, listen: Listen = lambda *_: None
) -> Look:
    """All three queues of a trained run; `n` is the length of the first. `listen` gets (pictures done, all)."""
    return queues_of(review(run, draws, listen), n, strategy)


def queues_of(found: Reviewed, n: int = 200, strategy: str = "certus") -> Look:
    """All three queues of a run that was opened."""
    return Look(
        classes=found.classes,
        pictures=found.pictures,
        labels=found.labels,
        next=to_label(found, n, strategy),
        suspects=suspects(found),
        accept=to_accept(found),
    )


def to_label(found: Reviewed, n: int, strategy: str = "certus") -> tuple[Item, ...]:
    """The n pictures without a label that are worth most."""
    if not len(found.free):
        return ()
    if strategy == "certus":
        doubt = np.zeros(len(found.labels))
        doubt[found.free] = ambivalence(found.opinions)
        chosen = of_every_kind(doubt, found.labels >= 0, found.learnt_features, n, found.config.seed)
        rows = np.searchsorted(found.free, chosen)
    else:
        rows = label_next(found.opinions, n=n, strategy=strategy, seed=found.config.seed)
    return tuple(Item(*answer_of(found, i), hesitation(found, i)) for i in rows)


def to_accept(found: Reviewed) -> tuple[Item, ...]:
    """The pictures without a label whose answer is certain."""
    if not len(found.free):
        return ()
    answers = found.answers
    rows, rank = find_certain(answers.probabilities, answers.uncertainty[answers.metric]), answers.rank()
    return tuple(
        Item(*answer_of(found, i), f"more certain than {1 - rank[i] / len(answers):.0%} of the answers") for i in rows
    )


def answer_of(found: Reviewed, i: int) -> tuple[int, int, float]:
    """Picture, answer and its probability, of the i-th picture without a label."""
    answer = int(found.answers.labels[i])
    return int(found.free[i]), answer, float(found.answers.probabilities[i, answer])


def hesitation(found: Reviewed, i: int) -> str:
    """The two most likely classes of the i-th picture without a label."""
    p = found.opinions[i]
    first, second = np.argsort(-p, kind="stable")[:2]
    return f"{found.classes[first]} ({p[first]:.0%}) or {found.classes[second]} ({p[second]:.0%})"


def suspects(found: Reviewed) -> tuple[Item, ...]:
    """The labels that a model contradicts which has not seen them."""
    rows = np.flatnonzero(found.labels >= 0)
    y = found.labels[rows]
    if len(np.unique(y)) < 2:
        return ()
    x = scaled(most_telling(found.unlearnt_features(rows), y, len(found.classes), found.config.seed))
    p = held_out_probabilities(x, y, len(found.classes), seed=found.config.seed)
    wrong = find_suspects(p, y)
    trusted = np.ones(len(y), bool)
    trusted[wrong] = False
    items = []
    for i in wrong:
        answer, sure = int(p[i].argmax()), float(p[i].max())
        items.append(
            Item(
                picture=int(rows[i]),
                answer=answer,
                sure=sure,
                reason=f"labelled {found.classes[y[i]]} ({p[i, y[i]]:.0%}), but looks like {found.classes[answer]} "
                f"({sure:.0%})",
                given=int(y[i]),
                like_given=tuple(rows[nearest(x, i, trusted & (y == y[i]))].tolist()),
                like_answer=tuple(rows[nearest(x, i, trusted & (y == answer))].tolist()),
            )
        )
    return tuple(items)


def nearest(x: NDArray[np.float32], i: int, among: NDArray[np.bool_], count: int = ALIKE) -> NDArray[np.int64]:
    """The rows among these that are nearest to row i, which is not one of them."""
    rows = np.flatnonzero(among)
    rows = rows[rows != i]
    return rows[np.argsort(np.square(x[rows] - x[i]).sum(1), kind="stable")[:count]]
