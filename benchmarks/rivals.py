"""What scikit-learn makes of a folder with few labels: models of HOG, or of the features of a pretrained network.

They get all labels in train/ and, where they can use them, the unlabelled pictures. Their settings are chosen by
cross-validation on the labels. With one label per class there is nothing to choose by, so they are fixed.
"""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from itertools import product
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from hog import SLICE, hog
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import StandardScaler, normalize
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from certus import Features
from certus.data import Part, pictures
from certus.writing import make_folder, put

NETWORK = "efficientnet-lite0"
HOG_SIDE = 64  # to which larger ones are brought
FOLDS = 5
# The first of each is taken where nothing can be chosen.
HOG_STRENGTHS = (1.0, 0.01, 0.1, 10.0, 100.0)  # C of logistic regression
STRENGTHS = (0.01, 0.0001, 0.001, 0.1, 1.0, 10.0)  # features are standardised, and there are many
THRESHOLDS = (0.75, 0.95)  # of self-training
NEIGHBOURS, ALPHAS = (10, 5, 20, 50), (0.8, 0.2)  # of label spreading
ROUNDS = 10  # of self-training
BLOCK = 512  # pictures whose features are kept in a file
Array = NDArray[Any]
Model = Any  # with fit, predict and predict_proba
Fit = Callable[[str, Path, int], "Fitted"]


@dataclass(frozen=True)
class Fitted:
    """The answers to the test pictures, the processor seconds up to them, and what was chosen."""

    probabilities: Array  # (N, C)
    seconds: float
    settings: dict[str, Any]
    network: str = ""


@dataclass(frozen=True)
class Task:
    """Vectors to learn from; the label is −1 where there is none."""

    x: Array  # (N, D)
    labels: Array  # (N,)
    test: Array
    seed: int
    seconds: float  # that the vectors of the training pictures took
    network: str = ""
    start: float = field(default_factory=time.process_time)

    @property
    def labelled(self) -> Array:
        return np.flatnonzero(self.labels >= 0)

    def folds(self) -> Iterator[tuple[Array, Array]]:
        """Indices of labelled pictures, to learn from and to answer; none if a class has one label."""
        count = min(FOLDS, *Counter(self.labels[self.labelled].tolist()).values())
        if count > 1:
            splitter = StratifiedKFold(count, shuffle=True, random_state=self.seed)
            for learn, hidden in splitter.split(self.labelled, self.labels[self.labelled]):
                yield self.labelled[learn], self.labelled[hidden]

    def best(
        self, choices: Sequence[Any], answers: Callable[[Any, Array, Array], Array]
    ) -> tuple[Any, dict[str, float]]:
        """The choice with the fewest wrong answers to hidden labels, and the error of each in percent.

        answers(choice, labels, hidden) are those of a model that sees `labels`, to the pictures `hidden`.
        """
        wrong: dict[Any, list[bool]] = {choice: [] for choice in choices}
        for learn, hidden in self.folds():
            seen = np.full_like(self.labels, -1)
            seen[learn] = self.labels[learn]
            for choice in choices:
                wrong[choice] += (answers(choice, seen, hidden) != self.labels[hidden]).tolist()
        errors = {str(choice): 100.0 * float(np.mean(w)) for choice, w in wrong.items() if w}
        return min(choices, key=lambda choice: errors.get(str(choice), 0.0)), errors

    def fitted(self, model: Model, labels: Array, settings: dict[str, Any]) -> Fitted:
        """Learn from these labels, and answer the test pictures."""
        used = np.arange(len(labels)) if (labels < 0).any() and takes_unlabelled(model) else np.flatnonzero(labels >= 0)
        model.fit(self.x[used], labels[used])
        seconds = self.seconds + time.process_time() - self.start
        return Fitted(model.predict_proba(self.test), seconds, settings, self.network)


def takes_unlabelled(model: Model) -> bool:
    return isinstance(model, SelfTrainingClassifier | LabelSpreading)


# --- vectors of pictures


def hog_task(data: str, cache: Path, seed: int) -> Task:  # noqa: ARG001
    """HOG of the labelled pictures, brought to a small size."""
    found = pictures(data).dataset
    known = found.train.labels >= 0
    start = time.process_time()
    x = hog(small(found.train.images[known]))
    seconds = time.process_time() - start
    return Task(x, found.train.labels[known].numpy(), hog(small(found.test.images)), seed, seconds)


def small(images: Tensor) -> Array:
    """Larger ones with the means of neighbouring pixels."""
    large = images.shape[-1] > HOG_SIDE
    parts = [adaptive_avg_pool2d(part.float(), HOG_SIDE) if large else part for part in images.split(SLICE)]
    return torch.cat(parts).numpy()


def features_task(data: str, cache: Path, seed: int) -> Task:
    """Features of a network with ImageNet weights, standardised over all training pictures."""
    found = pictures(data).dataset
    (train, seconds), (test, _) = (features(part, cache / "features" / NETWORK) for part in (found.train, found.test))
    start = time.process_time()
    scaler = StandardScaler().fit(train)
    x = scaler.transform(train)
    seconds += time.process_time() - start
    return Task(x, found.train.labels.numpy(), scaler.transform(test), seed, seconds, NETWORK)


def features(part: Part, cache: Path) -> tuple[Array, float]:
    """The features of each picture, and the seconds that they take. Each picture is computed once for all cells."""
    keys = [blake2b(image.tobytes(), digest_size=16).digest() for image in part.images.numpy()]
    found = stored(cache)
    missing = list({key: i for i, key in enumerate(keys) if key not in found}.values())
    for at in range(0, len(missing), BLOCK):
        some = missing[at : at + BLOCK]
        start = time.process_time()
        vectors = Features(NETWORK).transform(part.images[some].numpy())
        each = np.full((len(some), 1), (time.process_time() - start) / len(some), np.float32)
        block, rows = [keys[i] for i in some], np.concatenate([vectors, each], 1)
        make_folder(cache)
        put(cache / f"{blake2b(b''.join(block), digest_size=16).hexdigest()}.npz", partial(save_block, block, rows))
        found |= dict(zip(block, rows, strict=True))
    rows = np.stack([found[key] for key in keys])
    return rows[:, :-1], float(rows[:, -1].sum())


def stored(cache: Path) -> dict[bytes, Array]:
    """By the digest of a picture: its features, and then its seconds."""
    found: dict[bytes, Array] = {}
    for file in cache.glob("*.npz"):
        block = np.load(file)
        found |= zip((key.tobytes() for key in block["keys"]), block["rows"], strict=True)
    return found


def save_block(keys: Sequence[bytes], rows: Array, file: BinaryIO) -> None:
    np.savez(file, keys=np.frombuffer(b"".join(keys), np.uint8).reshape(len(keys), -1), rows=rows)


# --- models


def logistic(c: float) -> Model:
    return LogisticRegression(C=c, max_iter=1000)


def strength(task: Task, strengths: Sequence[float]) -> tuple[float, dict[str, float]]:
    def answers(c: float, labels: Array, hidden: Array) -> Array:
        known = labels >= 0
        return logistic(c).fit(task.x[known], labels[known]).predict(task.x[hidden])

    return task.best(strengths, answers)


def logistic_regression(
    make: Callable[[str, Path, int], Task], strengths: Sequence[float], data: str, cache: Path, seed: int
) -> Fitted:
    task = make(data, cache, seed)
    c, errors = strength(task, strengths)
    return task.fitted(logistic(c), task.labels, {"C": c, "errors": errors})


def self_training(data: str, cache: Path, seed: int) -> Fitted:
    """The strength is that of the labels alone."""
    task = features_task(data, cache, seed)
    c, _ = strength(task, STRENGTHS)

    def model(threshold: float) -> Model:
        return SelfTrainingClassifier(logistic(c), threshold=threshold, max_iter=ROUNDS)

    def answers(threshold: float, labels: Array, hidden: Array) -> Array:
        return model(threshold).fit(task.x, labels).predict(task.x[hidden])

    threshold, errors = task.best(THRESHOLDS, answers)
    return task.fitted(model(threshold), task.labels, {"C": c, "threshold": threshold, "errors": errors})


def label_spreading(data: str, cache: Path, seed: int) -> Fitted:
    """Neighbours are those of the smallest angle."""
    plain = features_task(data, cache, seed)
    task = Task(normalize(plain.x), plain.labels, normalize(plain.test), seed, plain.seconds, plain.network)

    def model(choice: tuple[int, float]) -> Model:
        return LabelSpreading(kernel="knn", n_neighbors=min(choice[0], len(task.x)), alpha=choice[1], max_iter=200)

    def answers(choice: tuple[int, float], labels: Array, hidden: Array) -> Array:
        return model(choice).fit(task.x, labels).transduction_[hidden]

    choice, errors = task.best(list(product(NEIGHBOURS, ALPHAS)), answers)
    return task.fitted(model(choice), task.labels, {"n_neighbors": choice[0], "alpha": choice[1], "errors": errors})


def version() -> str:
    import sklearn

    return f"scikit-learn {sklearn.__version__}"


def without_warnings(fit: Fit, data: str, cache: Path, seed: int) -> Fitted:
    """On convergence, and on pictures that no label reaches: what is chosen is chosen by its errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fit(data, cache, seed)


FITS: dict[str, Fit] = {
    name: partial(without_warnings, fit)
    for name, fit in {
        "hog + logistic regression": partial(logistic_regression, hog_task, HOG_STRENGTHS),
        "features + logistic regression": partial(logistic_regression, features_task, STRENGTHS),
        "features + self-training": self_training,
        "features + label spreading": label_spreading,
    }.items()
}
