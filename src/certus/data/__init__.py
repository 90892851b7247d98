"""Data sets by name, and folders of the user's pictures."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from certus.data.cache import Listen
from certus.data.cifar import cifar10, cifar100
from certus.data.dataset import Dataset, Part
from certus.data.digits import digits
from certus.data.fashion_mnist import fashion_mnist
from certus.data.files import OFFICIAL, data_folder, fetch
from certus.data.moons import moons
from certus.data.pictures import Pictures
from certus.data.pictures import load as load_pictures
from certus.data.svhn import svhn
from certus.errors import UsageError, unknown


@dataclass(frozen=True)
class DatasetEntry:
    """A data set that certus can load by name."""

    about: str
    load: Callable[[Path], Dataset]


DATASETS = {
    "digits": DatasetEntry("1,797 handwritten digits of 8×8 pixels, part of scikit-learn", lambda _: digits()),
    "moons": DatasetEntry("two half circles in the plane, for first experiments and tests", lambda _: moons()),
    "cifar10": DatasetEntry("60,000 photographs of 32×32 pixels, 10 classes", cifar10),
    "cifar100": DatasetEntry("60,000 photographs of 32×32 pixels, 100 classes", cifar100),
    "svhn": DatasetEntry("99,289 house numbers of 32×32 pixels", svhn),
    "fashion-mnist": DatasetEntry("70,000 pieces of clothing, 28×28 pixels, grey", fashion_mnist),
}


def is_folder(name: str) -> bool:
    """Whether `data` names a folder of pictures: it has a slash, or it is an existing folder and no data set."""
    return name not in DATASETS and ("/" in name or name in (".", "..") or Path(name).is_dir())


_opened: dict[tuple[Path, int, str], Pictures] = {}


def pictures(folder: str, size: int = 0, fit: str = "crop", listen: Listen = lambda *_: None) -> Pictures:
    """A folder of pictures, read once per process; `listen` is called with (pictures read, pictures to read)."""
    root = Path(folder).resolve()
    if (root, size, fit) not in _opened:
        found = load_pictures(root, size or None, listen=listen, fit=fit)
        _opened[root, size, fit] = _opened[root, found.size, fit] = found
    return _opened[root, size, fit]


@functools.cache
def load(name: str, root: str = "", size: int = 0, fit: str = "crop") -> Dataset:
    """A data set by name, its files in `root` (empty: the usual data folder); or a folder of pictures, at this size."""
    if is_folder(name):
        found = pictures(name, size, fit)
        return replace(found.dataset, validation=found.validation)
    if name not in DATASETS:
        raise unknown("data set", name, DATASETS)
    if size:
        raise UsageError(
            f"`size` is only for folders of pictures, and the images of {name} have a fixed size: leave it out."
        )
    return DATASETS[name].load(data_folder(Path(root) if root else None))


def forget() -> None:
    """Read folders of pictures and their labels anew when they are asked for again; pixels stay in the cache."""
    _opened.clear()
    load.cache_clear()


__all__ = [
    "DATASETS",
    "OFFICIAL",
    "Dataset",
    "Part",
    "Pictures",
    "data_folder",
    "fetch",
    "forget",
    "is_folder",
    "load",
    "pictures",
]
