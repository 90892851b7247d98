"""Settings that suit a data set, chosen on validation labels (benchmarks/tune.py), never on a test set."""

from __future__ import annotations

from typing import Any

PRESETS: dict[str, dict[str, Any]] = {
    "digits": {
        "width": 16,
        "translate": 1,
        "labelled_batch": 32,
        "unlabelled_batch": 96,
    },
    "moons": {
        "labels": 6,
        "width": 64,
        "dropout": 0.2,
        "translate": 0,
        "noise": 0.1,
        "labelled_batch": 32,
        "unlabelled_batch": 96,
    },
}

PICTURES: dict[str, Any] = {  # one's own
    "labels": 0,
    "validation": -1,
    "dropout": 0.3,
    "flip": True,
    "labelled_batch": 32,
    "unlabelled_batch": 96,
}

METHOD_PRESETS: dict[tuple[str, str], dict[str, Any]] = {}

EPOCHS = {"digits": 40.0, "moons": 40.0}


def epochs_for(data: str) -> float:
    """How long a run on this data set is when nothing else is asked for."""
    return EPOCHS.get(data, 100.0)
