"""Data sets by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from certus.data.dataset import Dataset, Part
from certus.data.digits import digits
from certus.data.moons import moons
from certus.errors import unknown

DATASETS: dict[str, tuple[str, Callable[[], Dataset]]] = {
    "digits": ("1,797 handwritten digits of 8×8 pixels, part of scikit-learn", digits),
    "moons": ("two half circles in the plane, for a first look and for tests", moons),
}


@cache
def load(name: str) -> Dataset:
    if name not in DATASETS:
        raise unknown("data set", name, DATASETS)
    return DATASETS[name][1]()


__all__ = ["DATASETS", "Dataset", "Part", "load"]
