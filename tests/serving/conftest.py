"""A service that answers by a rule, and a small trained run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from builders import plain_config
from services import Brightness, TestClient, client_of

from certus.training.build import build
from certus.training.loop import train
from certus.training.run_folder import RunFolder


@pytest.fixture
def client() -> Iterator[TestClient]:
    with client_of(Brightness()) as made:
        yield made


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on digits, with dropout and a witness."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    config = plain_config("mean-teacher", data="digits", labels=20, width=4, steps=6, labelled_batch=10,
                          unlabelled_batch=20, warm_up=0.5)  # fmt: skip
    train(build(config), RunFolder(folder))
    return folder
