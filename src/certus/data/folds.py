"""An error estimate where labels are too few to hold some out: a quick model that is tested fold by fold."""

from __future__ import annotations

from math import sqrt

from torch import Tensor

from certus.data.descriptors import describe, held_out_answers

FOLDS = 5
FEW = 10  # labels per class, on average; with fewer, a fifth of them says little and is missed


def error_by_folds(x: Tensor, labels: Tensor) -> tuple[float, float]:
    """The error (0 … 1) of a linear model on descriptors (N, D) that it was not fitted on, and its standard error.

    Every fifth of them in turn is answered by a model that has seen the others. A picture that is alone in its class
    cannot be tested; if all are, the error is that of chance.
    """
    tested = labels.bincount()[labels] > 1
    if not tested.any():
        return 1 - 1 / len(labels), 1.0
    (answers,) = held_out_answers(x, labels, (x,), FOLDS)
    wrong = float((answers != labels)[tested].double().mean())
    return wrong, sqrt(max(wrong * (1 - wrong), 1 / len(labels)) / int(tested.sum()))


def estimate(images: Tensor, labels: Tensor, labelled: Tensor) -> str:
    """What the labels `labelled` (indices of images) show about the error, in a sentence or two."""
    n, truth = len(labelled), labels[labelled]
    counts = truth.bincount()
    tested = counts[truth] > 1
    used = f"Fewer than {FEW} labels per class: all {n:,} are used for training, so this run measures no error."
    if not tested.any():
        return f"{used} To measure it, put labelled pictures into a folder test/."
    wrong, doubt = error_by_folds(describe(images, labelled), truth)
    return (
        f"{used} A quick linear model that sees four fifths of them is wrong on {wrong:.0%} ± {doubt:.0%} of the rest; "
        "the network may be better or worse."
    )
