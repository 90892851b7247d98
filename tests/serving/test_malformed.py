"""A small version of the campaign in benchmarks/serving.py: malformed requests beside good ones."""

from __future__ import annotations

import json
import random
from collections import Counter

import pytest
from malformed import request
from services import Brightness, as_json, client_of, picture

COUNT = 250


@pytest.mark.parametrize("seed", [0, 1])
def test_malformed_requests_are_refused_and_good_ones_are_answered(seed: int) -> None:
    r, statuses = random.Random(seed), Counter[int]()
    with client_of(Brightness(), max_bytes=20_000) as client:
        document = client.get("/openapi.json").json()
        known = {int(status) for status in document["paths"]["/predict"]["post"]["responses"]}
        for number in range(COUNT):
            method, path, headers, body = request(r, document)
            encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
            response = client.request(method, path.encode().decode("latin-1"), headers=encoded, content=body)
            statuses[response.status_code] += 1
            assert response.status_code < 500, (number, response.text)
            if method == "POST" and path == "/predict":
                assert response.status_code in known
            if response.status_code >= 400 and method != "HEAD":
                assert json.loads(response.text)["error"].endswith((".", "paths."))
            if number % 10 == 0:
                good = client.post("/predict", json=as_json(picture(number % 7)))
                assert good.json()["answers"][0]["label"] == f"class {number % 7}"
        service = client.service  # type: ignore[attr-defined]
        assert (service.held.bytes, service.batcher.taken, service.under_way) == (0, 0, 0)
    assert {400, 403, 413, 415, 422} <= set(statuses)
