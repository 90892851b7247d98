"""Settings, their checks, presets, and how they are resolved."""

from certus.config.resolve import (
    decide,
    decide_mirroring,
    estimate_by_folds,
    resolve,
    split_of,
    steps_per_epoch,
    visible_labels,
)
from certus.config.settings import Config

__all__ = [
    "Config",
    "decide",
    "decide_mirroring",
    "estimate_by_folds",
    "resolve",
    "split_of",
    "steps_per_epoch",
    "visible_labels",
]
