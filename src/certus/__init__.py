"""certus: image classifiers from a few labels and many unlabelled images, with the certainty of every answer.

>>> import certus
>>> model = certus.train("digits", method="supervised", steps=5, out="first-run")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = [
    "Classifier",
    "Features",
    "Model",
    "Prediction",
    "__version__",
    "compare",
    "find_certain",
    "find_suspects",
    "held_out_probabilities",
    "label_next",
    "load",
    "register",
    "train",
]

if TYPE_CHECKING:
    from certus.api import compare, train
    from certus.classifier import Classifier
    from certus.features import Features
    from certus.methods import register
    from certus.model import Model, Prediction, load
    from certus.review.accepting import find_certain
    from certus.review.choosing import label_next
    from certus.review.suspecting import find_suspects, held_out_probabilities

HOMES = {
    "Classifier": "certus.classifier",
    "Features": "certus.features",
    "Model": "certus.model",
    "Prediction": "certus.model",
    "compare": "certus.api",
    "find_certain": "certus.review.accepting",
    "find_suspects": "certus.review.suspecting",
    "held_out_probabilities": "certus.review.suspecting",
    "label_next": "certus.review.choosing",
    "load": "certus.model",
    "register": "certus.methods",
    "train": "certus.api",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that `import certus` and `certus --version` are quick."""
    if name not in HOMES:
        raise AttributeError(f"module 'certus' has no attribute {name!r}")
    return getattr(import_module(HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
