"""Features of a network with ImageNet weights, as a scikit-learn transformer."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin

from certus.data.arrays import channels_first
from certus.errors import UsageError
from certus.networks.mobile import FEATURES
from certus.networks.weights import IMAGENET
from certus.training.embedding import Trunk


class Features(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Images as vectors of 1,280 features that a network learnt on ImageNet. Nothing is fitted.

    Parameters
    ----------
    network : str
        efficientnet-lite0 or mobilenet-v2.
    weights : str
        imagenet, or a file of weights.

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
        array of shape (n, 1280)
        """
        if self.network not in IMAGENET:
            raise UsageError(f"`network` must be one of {', '.join(IMAGENET)}, but is {self.network!r}.")
        images = channels_first(torch.as_tensor(np.asarray(X)))
        if images.shape[1] not in (1, 3):
            raise UsageError(f"Images must be grey or have three colours, but these have {images.shape[1]} channels.")
        white = 1.0 if images.is_floating_point() else 255.0
        trunk = Trunk(self.network, tuple(images.shape[1:]), white).load(self.network, self.weights)
        return trunk(images).numpy()

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:  # noqa: ARG002
        """feature0 … feature1279."""
        return np.array([f"feature{i}" for i in range(FEATURES)], dtype=object)
