"""Features of a network with ImageNet weights, as a scikit-learn transformer."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin

from certus.data.arrays import channels_first
from certus.errors import UsageError
from certus.networks import has_weights
from certus.networks.weights import IMAGENET
from certus.training.embedding import Trunk


class Features(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Images as vectors of features that a network learnt on other pictures. Nothing is fitted.

    Parameters
    ----------
    network : str
        efficientnet-lite0 or mobilenet-v2, with 1,280 features; timm:NAME or transformers:NAME where that package is
        installed.
    weights : str
        imagenet (for a model of another package, its own weights), or a file of weights.

    Examples
    --------
    >>> from certus import Features
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> model = make_pipeline(Features(), StandardScaler(), LogisticRegression(C=0.01))
    """

    def __init__(self, network: str = "efficientnet-lite0", weights: str = "imagenet") -> None:
        self.network = network
        self.weights = weights

    def fit(self, X: Any, y: Any = None) -> Features:  # noqa: ARG002
        """Do nothing, and return itself."""
        return self

    @torch.no_grad()
    def transform(self, X: Any) -> NDArray[np.float32]:
        """The features of images.

        Parameters
        ----------
        X : array
            Images (n, h, w), (n, h, w, c) or (n, c, h, w): uint8, or float from 0 to 1.

        Returns
        -------
        array of shape (n, features)
        """
        images = channels_first(torch.as_tensor(np.asarray(X)))
        if images.shape[1] not in (1, 3):
            raise UsageError(f"Images must be grey or have three colours, but these have {images.shape[1]} channels.")
        return self._trunk(tuple(images.shape[1:]), 1.0 if images.is_floating_point() else 255.0)(images).numpy()

    def _trunk(self, shape: tuple[int, ...], white: float) -> Trunk:
        if not has_weights(self.network):
            named = ", ".join(IMAGENET)
            raise UsageError(
                f"`network` must be one of {named}, timm:NAME or transformers:NAME, but is {self.network!r}."
            )
        return Trunk(self.network, shape, white, self.weights)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:  # noqa: ARG002
        """feature0, feature1, …"""
        return np.array([f"feature{i}" for i in range(self._trunk((3, 96, 96), 255.0).width)], dtype=object)
