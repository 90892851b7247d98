"""Write scikit-learn's 1,797 handwritten digits as a folder of PNG pictures, to try certus on a folder.

    python examples/digits_as_pictures.py photos
    certus train --data photos

photos/0 … photos/9 hold the few labelled pictures, photos/unlabeled the many others, photos/test a third of all.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

CLASSES = 10


def write(folder: Path, labels: int) -> None:
    """`labels` labelled pictures, the same number of each digit, drawn once and for all."""
    raw = load_digits()
    images = np.round(raw.images * (255 / 16)).astype(np.uint8)  # (N, 8, 8)
    train, test = train_test_split(np.arange(len(images)), test_size=0.3, stratify=raw.target, random_state=0)
    left = dict.fromkeys(range(CLASSES), labels // CLASSES)
    for i in train:
        digit = int(raw.target[i])
        place = folder / (str(digit) if left[digit] > 0 else "unlabeled")
        left[digit] -= 1
        save(images[i], place / f"{i:04}.png")
    for i in test:
        save(images[i], folder / "test" / str(raw.target[i]) / f"{i:04}.png")


def save(image: np.ndarray, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(image).save(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="a new folder")
    parser.add_argument("--labels", type=int, default=50, help="labelled pictures, a multiple of 10 (50)")
    given = parser.parse_args()
    if given.folder.exists():
        sys.exit(f"{given.folder} exists already: name a new folder.")
    if given.labels < CLASSES or given.labels % CLASSES or given.labels > 1000:
        sys.exit(f"--labels must be a multiple of 10 from 10 to 1000, but is {given.labels}.")
    write(given.folder, given.labels)
    print(f"{given.folder}: {given.labels} labelled pictures. Now type: certus train --data {given.folder}")


if __name__ == "__main__":
    main()
