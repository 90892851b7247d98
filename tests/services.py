"""Pictures, and services that answer by a rule instead of a network."""

from __future__ import annotations

import base64
import io
import warnings
from typing import Any

import numpy as np
from PIL import Image

from certus.serving.access import Access
from certus.serving.answerer import About, Answers, Pictures
from certus.serving.app import Service
from certus.serving.limits import Limits

with warnings.catch_warnings():  # it would like another package than httpx
    warnings.simplefilter("ignore")
    from starlette.testclient import TestClient

HOME = "http://127.0.0.1:8000"


def picture(brightness: int = 0, size: tuple[int, int] = (8, 8), kind: str = "PNG") -> bytes:
    """The file of a grey picture."""
    file = io.BytesIO()
    Image.new("L", size, brightness).save(file, kind)
    return file.getvalue()


def as_json(*pictures: bytes) -> dict[str, Any]:
    return {"pictures": [base64.b64encode(data).decode() for data in pictures]}


def as_files(*pictures: bytes) -> list[tuple[str, tuple[str, bytes]]]:
    return [("pictures", (f"{i}.png", data)) for i, data in enumerate(pictures)]


class Brightness:
    """Answers the class whose number is the brightness of a picture. Above `limit` it is not sure."""

    threads = 1

    def __init__(self, classes: int = 10, limit: float | None = None) -> None:
        names = tuple(f"class {i}" for i in range(classes))
        self.about = About(
            "rule", names, 4, "crop", "confidence", limit, "At most 2 % are wrong." * (limit is not None)
        )
        self.sizes: list[int] = []

    def answer(self, pictures: Pictures) -> Answers:
        self.sizes.append(len(pictures))
        labels = pictures[:, 0, 0, 0]
        rest = labels / 300
        p = np.full((len(labels), len(self.about.classes)), 0.0, np.float32)
        p += (rest / (p.shape[1] - 1))[:, None]
        p[np.arange(len(labels)), labels % p.shape[1]] = 1 - rest
        sure = None if self.about.limit is None else rest < self.about.limit
        return Answers(p, {"confidence": rest.astype(np.float32)}, sure)


def client_of(answerer: Any, token: str = "", **limits: Any) -> TestClient:
    service = Service(answerer, Limits(**limits), Access(token))
    client = TestClient(service.app(), base_url=HOME)
    client.service = service  # type: ignore[attr-defined]
    return client
