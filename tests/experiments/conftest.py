"""CIFAR-10 in small, a scale that trains in seconds, and data sets of the real sizes."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from experiments.inline import Serial

from certus.cli import paper as cli
from certus.config import Config
from certus.data.dataset import Dataset, Part
from certus.experiments import compare, plan
from certus.experiments.paper import Scale, scales
from certus.training import planning

TINY = Scale(
    "cpu",
    seeds=2,
    settings={
        "network": "cnn13",
        "width": 2,
        "labelled_batch": 10,
        "unlabelled_batch": 20,
        "unlabelled": 200,
        "validation": 100,
        "steps": 30,
    },
    pretraining=0.5,
)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """CIFAR-10 in its official format, but 4,400 training images and 300 of test; a class is a shade of grey."""
    home = tmp_path_factory.mktemp("data")
    folder = home / "cifar-10-batches-bin"
    folder.mkdir()
    random = np.random.default_rng(0)

    def write(name: str, n: int) -> None:
        labels = np.arange(n) % 10
        images = random.normal(25 * labels[:, None] + 12, 8, (n, 3 * 32 * 32)).clip(0, 255).astype(np.uint8)
        (folder / name).write_bytes(np.concatenate([labels[:, None].astype(np.uint8), images], 1).tobytes())

    for i in range(1, 6):
        write(f"data_batch_{i}.bin", 880)
    write("test_batch.bin", 300)
    (folder / "batches.meta.txt").write_text("\n".join(f"shade {c}" for c in range(10)) + "\n")
    return home


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> Scale:
    """Trained in this process, without the report: both have their own tests."""
    monkeypatch.setitem(scales.SCALES, "cpu", TINY)
    open_length = replace(TINY, settings={name: v for name, v in TINY.settings.items() if name != "steps"})
    monkeypatch.setitem(scales.OWN, "images", replace(open_length, name="images"))
    monkeypatch.setitem(scales.OWN, "record", replace(open_length, name="record", minutes=180.0, cores=2.0))
    monkeypatch.setattr(compare, "open_pool", Serial)
    monkeypatch.setattr(cli, "write_report", lambda *_: None)
    return TINY


@pytest.fixture
def timings(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """Nothing is timed: 100 steps fit into a minute, and one more with each arm. The minutes of each method that was
    asked for; arms from RotNet count as one."""
    asked: dict[str, float] = {}
    count = itertools.count(1)

    def timed_within(config: Config, minutes: float) -> Config:
        fresh = config.method not in asked or asked[config.method] == minutes
        asked[config.method if fresh else "from RotNet"] = minutes
        return replace(config, steps=round(100 * minutes) + next(count), warm_up=max(0.5, config.warm_up))

    monkeypatch.setattr(plan, "timed_within", timed_within)
    return asked


def paper_size(name: str, *_: object) -> Dataset:
    """As large as the real one, but every image is the same."""
    train, test = {"svhn": (73257, 26032)}.get(name, (50000, 10000))
    classes = 100 if name == "cifar100" else 10

    def part(n: int) -> Part:
        return Part(torch.zeros(1, 3, 32, 32, dtype=torch.uint8).expand(n, -1, -1, -1), torch.arange(n) % classes)

    return Dataset(name, tuple(f"class {c}" for c in range(classes)), part(train), part(test))


@pytest.fixture
def real_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "load", paper_size)
