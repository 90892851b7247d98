"""certus: image classifiers from a few labels and many unlabelled images, with the certainty of every answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["Classifier", "Model", "Prediction", "__version__", "load"]

if TYPE_CHECKING:
    from certus.classifier import Classifier
    from certus.model import Model, Prediction, load


def __getattr__(name: str) -> Any:
    """The public names are imported when they are first asked for, so that `certus --version` is quick."""
    from importlib import import_module

    if name == "Classifier":
        return import_module("certus.classifier").Classifier
    if name in ("Model", "Prediction", "load"):
        return getattr(import_module("certus.model"), name)
    raise AttributeError(f"module 'certus' has no attribute {name!r}")
