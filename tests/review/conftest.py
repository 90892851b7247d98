"""A folder of small coloured pictures with one wrong label, and a run that was trained on it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import certus
from certus import data
from certus.review.session import Session, open_session

COLOURS = {"blue": (40, 60, 220), "green": (40, 200, 60), "red": (220, 50, 40)}
WRONG = "blue/red-99.png"  # a red picture among the blue ones


def write_colours(root: Path, labelled: int = 14, unlabelled: int = 25) -> Path:
    random = np.random.default_rng(0)

    def write(path: Path, colour: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.array(COLOURS[colour]) + random.normal(0, 45, (16, 16, 3))
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(path)

    for colour in COLOURS:
        for i in range(labelled):
            write(root / colour / f"{colour}-{i:02}.png", colour)
        for i in range(unlabelled):
            write(root / "unlabeled" / f"{colour}-{i:02}.png", colour)
    write(root / WRONG, "red")
    return root


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds photos/ and run/; to be copied."""
    place = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_CACHE_HOME", str(place / "cache"))
        certus.train(
            write_colours(place / "photos"),
            network="mlp",
            method="supervised",
            width=16,
            dropout=0.0,
            translate=0,
            size=16,
            steps=60,
            learning_rate=0.02,
            labelled_batch=16,
            validation=6,
            flip=False,
            threads=1,
            out=place / "run",
        )
    return place


@pytest.fixture
def place(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy: photos/ and run/."""
    shutil.copytree(trained / "photos", tmp_path / "photos")
    shutil.copytree(trained / "run", tmp_path / "run")
    config = tmp_path / "run" / "config.toml"
    config.write_text(re.sub(r"(?m)^data = .*$", f'data = "{tmp_path / "photos"}"', config.read_text()))
    monkeypatch.setenv("XDG_CACHE_HOME", str(trained / "cache"))
    data.forget()
    return tmp_path


@pytest.fixture
def session(place: Path) -> Session:
    return open_session(place / "run")
