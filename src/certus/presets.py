"""Settings that suit a data set, chosen on validation labels (benchmarks/tune.py), never on a test set."""

from __future__ import annotations

from typing import Any

PRESETS: dict[str, dict[str, Any]] = {
    "digits": {  # docs/digits.md tells how these were chosen
        "dropout": 0.2,
        "translate": 0,  # these digits are centred: shifting them by a pixel hurts
        "noise": 0.5,
        "labelled_batch": 32,
        "unlabelled_batch": 96,
        "learning_rate": 0.2,
    },
    "moons": {
        "labels": 6,
        "dropout": 0.1,
        "translate": 0,
        "noise": 0.3,
        "labelled_batch": 12,
        "unlabelled_batch": 200,
        "learning_rate": 0.02,
    },
    "svhn": {"labels": 1000, "validation": 1000, "dropout": 0.3, "translate": 2},
    "cifar10": {"labels": 4000, "validation": 1000, "dropout": 0.3, "translate": 2, "flip": True},
    "cifar100": {"labels": 10000, "validation": 1000, "dropout": 0.3, "translate": 2, "flip": True},
    "fashion-mnist": {"labels": 1000, "validation": 1000, "dropout": 0.3, "translate": 2, "flip": True},
}

PICTURES: dict[str, Any] = {  # one's own
    "labels": 0,
    "validation": -1,
    "dropout": 0.3,
    "flip": True,
    "labelled_batch": 32,
    "unlabelled_batch": 96,
}

METHOD_PRESETS: dict[tuple[str, str], dict[str, Any]] = {
    ("digits", "supervised"): {"dropout": 0.35},
    ("digits", "pi"): {"weight": 5.0},
    ("digits", "mean-teacher"): {"weight": 5.0},
    **{
        ("digits", method): {"weight": 20.0, "ramp": 160.0} for method in ("filtering-ccl", "temperature-ccl", "ft-ccl")
    },
    ("moons", "pi"): {"weight": 18.0, "ramp": 10.0},
    ("moons", "mean-teacher"): {"weight": 18.0, "ramp": 10.0},
    ("moons", "filtering-ccl"): {"weight": 50.0, "ramp": 10.0, "draws": 5},
    ("moons", "temperature-ccl"): {"weight": 60.0, "ramp": 10.0, "draws": 5},
    ("moons", "ft-ccl"): {"weight": 100.0, "ramp": 10.0, "draws": 5},
}

EPOCHS = {"digits": 40.0, "moons": 200.0}


def epochs_for(data: str) -> float:
    """How long a run on this data set is when nothing else is asked for."""
    return EPOCHS.get(data, 100.0)
