"""certus as a scikit-learn classifier: y == -1 means unlabelled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_is_fitted, column_or_1d, validate_data
from torch import nn

from certus.config import resolve
from certus.config.presets import IMAGES, VECTORS
from certus.data.arrays import Pixels, as_column, channels_first, check_rank, known_labels
from certus.data.dataset import Dataset, Part
from certus.model import Model, Prediction
from certus.randomness import untouched_generator
from certus.training.build import build_on
from certus.training.embedding import trunk_of
from certus.training.loop import fit
from certus.training.planning import complete_on

SMALL = {"steps": 300, "threads": 1}  # for vectors: several threads would only wait for each other
OWN = {"optimiser": "sgd", "learning_rate": 0.05}  # Muon keeps the norm of each matrix, which not every network bears


class Classifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A semi-supervised classifier of vectors or images.

    Parameters
    ----------
    method : str
        One of `certus methods`. auto: mean-teacher for images; for vectors label-propagation, which carried a few
        labels further than ft-ccl (docs/python.md).
    steps : int
        Training steps. None: what suits the data.
    network : str or callable
        The name of a network, or a function `() -> nn.Module` that makes one. It maps inputs to logits, and needs
        dropout where certainty is measured.
    learning_rate : float
        None: what suits the network.
    options : dict
        Options of the method, as in `certus methods NAME`.
    settings : dict
        Any other setting of `certus train --help`.
    draws : int
        Monte-Carlo draws that `uncertainty` is computed from.
    random_state : int
        Seed of the initialisation and of every random draw.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        The labels that were seen in `fit`.
    model_ : Model
        The trained networks.

    Examples
    --------
    >>> from certus import Classifier
    >>> from sklearn.datasets import make_moons
    >>> X, y = make_moons(200, noise=0.1, random_state=0)
    >>> y[20:] = -1  # unlabelled
    >>> clf = Classifier(steps=50).fit(X, y)
    >>> clf.predict(X).shape, clf.predict_proba(X).shape, clf.uncertainty(X).shape
    ((200,), (200, 2), (200,))
    """

    def __init__(
        self,
        method: str = "auto",
        *,
        steps: int | None = None,
        network: str | Callable[[], nn.Module] = "auto",
        learning_rate: float | None = None,
        options: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        draws: int = 10,
        random_state: int = 0,
    ) -> None:
        self.method = method
        self.steps = steps
        self.network = network
        self.learning_rate = learning_rate
        self.options = options
        self.settings = settings
        self.draws = draws
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Classifier:
        """Train on labelled and unlabelled rows.

        Parameters
        ----------
        X : array
            Vectors (n, d) or images (n, h, w), (n, h, w, c) or (n, c, h, w), uint8 or float.
        y : array of shape (n,)
            Labels, numbers or text. Unlabelled rows have -1 or NaN; beside text None, "" or -1. Without unlabelled
            rows, the labelled rows are used in their place.

        Returns
        -------
        Classifier
            Itself.
        """
        X, known, given = self._checked(X, y)
        self.classes_, index = np.unique(given, return_inverse=True)
        if len(self.classes_) < 2:
            found = f"one class: {self.classes_}" if len(self.classes_) else "no label at all"
            raise ValueError(f"Classifier needs labels of two classes or more, but y has {found}")
        labels = np.full(len(known), -1, dtype=np.int64)
        labels[known] = index
        images = as_images(X)
        empty = Part(images[:0], torch.empty(0, dtype=torch.int64))
        names = tuple(map(str, self.classes_))
        data = Dataset("the data given", names, Part(images, torch.from_numpy(labels)), empty)
        self.model_ = self._train(data)
        return self

    def _train(self, data: Dataset) -> Model:
        kind, usual = (VECTORS, "mlp") if len(data.shape) == 1 else (IMAGES, "cnn13")
        make = None if isinstance(self.network, str) else self.network
        named = {"steps": self.steps, "learning_rate": self.learning_rate}
        given = {
            "data": kind,
            "method": self.method,
            "seed": int(self.random_state or 0),
            "network": usual if make else self.network,  # an own network is trained as a published one
            **(SMALL if kind == VECTORS else {}),
            **(OWN if make else {}),
            **{name: value for name, value in named.items() if value is not None},
            **(self.settings or {}),
            "options": dict(self.options or {}),
        }
        given = {name: value for name, value in given.items() if value != "auto" or name not in ("network", "method")}
        with untouched_generator():
            run = build_on(data, complete_on(data, resolve(given), make=make), make, reuse_labelled=True)
            fit(run)
        mean, std = run.inputs.scale
        pixels = Pixels.of(data.train.images)
        return Model(
            nets=run.method.answers,
            classes=data.classes,
            shape=data.shape,
            mean=mean,
            std=std,
            looks=run.config.looks,
            trunk=trunk_of(run.config, data) if run.config.depth == "head" else None,
            witnesses=run.method.witnesses,
            pixels=pixels,
        )

    def predict_proba(self, X: Any) -> NDArray[np.float32]:
        """The probability of each class, of shape (n, n_classes)."""
        check_is_fitted(self)
        return self._answer(X, 0).probabilities

    def predict(self, X: Any) -> NDArray[Any]:
        """The most likely label of each row, of shape (n,)."""
        check_is_fitted(self)
        return self.classes_[self._answer(X, 0).labels]

    def uncertainty(self, X: Any, metric: str = "auto") -> NDArray[np.float32]:
        """How uncertain each answer is, of shape (n,): larger means less sure.

        `metric` is pv, ev, pe, mi or pr of Monte-Carlo draws, confidence (1 − max p of one clean pass), or witness
        (what the network answered before it learnt from unlabelled rows is looked at, too; for methods with a
        warm-up). auto: witness if there is one, else pe.
        """
        check_is_fitted(self)
        answered = self._answer(X, self.draws)
        return answered.uncertainty[answered.metric if metric == "auto" else metric]

    def _answer(self, X: Any, draws: int) -> Prediction:
        image = len(self.model_.shape) == 3
        X = check_array(X, **checks(X)) if image else validate_data(self, X, reset=False, **checks(X))
        return self.model_.predict(X, draws, int(self.random_state or 0))

    def _checked(self, X: Any, y: Any) -> tuple[NDArray[Any], NDArray[np.bool_], NDArray[Any]]:
        """After scikit-learn's own checks: the inputs, which rows have a label, and their labels."""
        if y is None:
            validate_data(self, X, y, **checks(X))  # raises
        known, labels = known_labels(column_or_1d(as_column(y), warn=True))
        X, _ = validate_data(self, X, known, **checks(X))
        check_classification_targets(labels)
        return X, known, labels

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = False
        tags.input_tags.three_d_array = True
        return tags


def checks(X: Any) -> dict[str, Any]:
    """What scikit-learn is asked to check: images keep their shape, and bytes stay bytes."""
    return {"allow_nd": True, "dtype": None if np.asarray(X).dtype == np.uint8 else np.float32}


def as_images(X: NDArray[Any]) -> torch.Tensor:
    """Vectors (n, d) as floats, images as (n, c, h, w)."""
    check_rank(X.shape)
    x = torch.from_numpy(np.require(X, requirements=["C", "W"]))
    x = channels_first(x) if x.dim() > 2 else x.float()
    return x if x.dtype == torch.uint8 else x.float()
