"""Requests and answers, within the process."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from typing import Any

import pytest
from services import HOME, Brightness, TestClient, as_files, as_json, client_of, picture

from certus.serving.answerer import Answers, Pictures

TOKEN = "a-token-of-more-than-16-characters"


def labels(response: Any) -> list[str]:
    assert response.status_code == 200, response.text
    return [answer["label"] for answer in response.json()["answers"]]


def test_files_and_json_get_the_same_answers_in_order(client: TestClient) -> None:
    pictures = [picture(brightness) for brightness in (3, 1, 4, 1, 5)]
    files, texts = client.post("/predict", files=as_files(*pictures)), client.post("/predict", json=as_json(*pictures))
    assert labels(files) == [f"class {i}" for i in (3, 1, 4, 1, 5)]
    assert files.json() == texts.json()


def test_an_answer_has_probabilities_certainty_and_whether_it_is_given(client: TestClient) -> None:
    (answer,) = client.post("/predict", json=as_json(picture(6))).json()["answers"]
    assert set(answer) == {"label", "probabilities", "certainty", "uncertainty", "answered"}
    assert sum(answer["probabilities"].values()) == pytest.approx(1, abs=1e-5)
    assert max(answer["probabilities"], key=answer["probabilities"].get) == answer["label"] == "class 6"
    assert answer["certainty"] == pytest.approx(1 - 6 / 300)
    assert answer["uncertainty"] == {"confidence": pytest.approx(6 / 300)}
    assert answer["answered"]


def test_a_calibrated_model_is_silent_where_it_is_not_sure() -> None:
    with client_of(Brightness(limit=4.5 / 300)) as client:
        answers = client.post("/predict", json=as_json(picture(4), picture(5))).json()["answers"]
        assert [answer["answered"] for answer in answers] == [True, False]
        about = client.get("/model").json()
        assert about["limit"] == pytest.approx(0.015)
        assert "2 %" in about["promise"]
        assert 'outcome="not sure"} 1' in client.get("/metrics").text


BOMB = picture(1)[:16] + struct.pack(">II", 60_000, 60_000) + picture(1)[24:29]
BOMB += struct.pack(">I", zlib.crc32(BOMB[12:29])) + picture(1)[33:]
CASES: dict[str, tuple[int, dict[str, Any]]] = {
    "no body": (415, {}),
    "another type": (415, {"content": b"hello", "headers": {"content-type": "text/plain"}}),
    "no JSON": (400, {"content": b"{", "headers": {"content-type": "application/json"}}),
    "deep JSON": (400, {"content": b"[" * 200_000, "headers": {"content-type": "application/json"}}),
    "a huge number": (400, {"content": b"1" * 9999, "headers": {"content-type": "application/json"}}),
    "a list": (422, {"json": []}),
    "another name": (422, {"json": {"images": []}}),
    "a name too many": (422, {"json": {**as_json(picture()), "top": 3}}),
    "no list": (422, {"json": {"pictures": "text"}}),
    "no picture": (422, {"json": {"pictures": []}}),
    "numbers": (422, {"json": {"pictures": [1]}}),
    "no base64": (422, {"json": {"pictures": ["!!!"]}}),
    "half a character": (
        422,
        {"content": b'{"pictures": ["\\ud800"]}', "headers": {"content-type": "application/json"}},
    ),
    "an empty picture": (422, {"json": {"pictures": [""]}}),
    "no picture in base64": (422, {"json": as_json(b"hello")}),
    "half a picture": (422, {"json": as_json(picture(3, (64, 64))[:60])}),
    "a bomb": (422, {"json": as_json(BOMB)}),
    "too many pixels": (422, {"json": as_json(picture(1, (101, 100)))}),
    "too many pictures": (422, {"json": as_json(*[picture()] * 5)}),
    "too many files": (422, {"files": as_files(*[picture()] * 5)}),
    "too many bytes": (413, {"content": b" " * 300_001, "headers": {"content-type": "application/json"}}),
    "no boundary": (400, {"content": b"--", "headers": {"content-type": "multipart/form-data"}}),
    "an empty form": (400, {"content": b"", "headers": {"content-type": "multipart/form-data; boundary=b"}}),
    "a form cut short": (
        400,
        {
            "content": b'--b\r\nContent-Disposition: form-data; name="pictures"; filename="a"\r\n\r\nabc',
            "headers": {"content-type": "multipart/form-data; boundary=b"},
        },
    ),
    "a part of another name": (422, {"files": [("image", ("a.png", picture()))]}),
    "a long header": (
        400,
        {
            "content": b"--b\r\nContent-Disposition: " + b"x" * 9000 + b"\r\n\r\n\r\n--b--\r\n",
            "headers": {"content-type": "multipart/form-data; boundary=b"},
        },
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_cannot_be_answered_is_refused_in_a_sentence(name: str) -> None:
    status, request = CASES[name]
    with client_of(Brightness(), max_pictures=4, max_bytes=300_000, max_pixels=10_000) as client:
        response = client.post("/predict", **request)
        assert response.status_code == status, response.text
        sentence = response.json()["error"]
        assert sentence.endswith(".")
        assert "\n" not in sentence
        assert len(sentence) < 300
        service = client.service  # type: ignore[attr-defined]
        assert (service.held.bytes, service.batcher.taken, service.under_way) == (0, 0, 0)
        assert labels(client.post("/predict", json=as_json(picture(2)))) == ["class 2"]


def test_a_body_without_a_length_is_cut_at_the_limit() -> None:
    read = 0

    def endless() -> Any:
        nonlocal read
        for _ in range(1000):
            read += 1
            yield b" " * 1000

    with client_of(Brightness(), max_bytes=5_000) as client:
        response = client.post("/predict", content=endless(), headers={"content-type": "application/json"})
    assert response.status_code == 413


def test_the_picture_that_cannot_be_read_is_named(client: TestClient) -> None:
    refused = client.post("/predict", json=as_json(picture(1), b"nothing", picture(2))).json()
    assert refused["picture"] == 2
    assert "Picture 2" in refused["error"]
    assert 'outcome="unreadable"} 1' in client.get("/metrics").text


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "", "192.168.0.7:8000", "[::2]", "a b", "[["]
)
def test_without_a_token_another_name_for_this_machine_is_refused(client: TestClient, host: str) -> None:
    for path in ("/", "/model", "/health"):
        assert client.get(path, headers={"host": host}).status_code == 403


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8000", "127.0.0.1:1", "[::1]:8000", "127.8.9.1"])
def test_names_of_this_machine_are_served(client: TestClient, host: str) -> None:
    assert client.get("/", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "https://127.0.0.1:8000", "http://127.0.0.1:9000", ""]
)
def test_pages_of_other_sites_are_refused(client: TestClient, origin: str) -> None:
    assert client.post("/predict", json=as_json(picture(1)), headers={"origin": origin}).status_code == 403
    assert labels(client.post("/predict", json=as_json(picture(1)), headers={"origin": HOME})) == ["class 1"]


def test_with_a_token_only_those_who_know_it_are_answered() -> None:
    with client_of(Brightness(), TOKEN) as client:
        for given in (None, "", "Bearer", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer é"):
            headers = {} if given is None else {"authorization": given.encode()}
            refused = client.post("/predict", json=as_json(picture(1)), headers=headers)  # type: ignore[arg-type]
            assert refused.status_code == 401, given
            assert refused.headers["www-authenticate"] == "Bearer"
            for path in ("/model", "/metrics", "/openapi.json"):
                assert client.get(path, headers=headers).status_code == 401  # type: ignore[arg-type]
        for path in ("/", "/health", "/ready"):
            assert client.get(path, headers={"host": "anywhere.example"}).status_code == 200
        good = {"authorization": f"bearer {TOKEN}", "host": "anywhere.example"}
        assert labels(client.post("/predict", json=as_json(picture(1)), headers=good)) == ["class 1"]


def test_paths_and_methods_that_do_not_exist_are_refused_like_everything_else(client: TestClient) -> None:
    for response, status in ((client.get("/nothing"), 404), (client.get("/predict"), 405), (client.put("/"), 405)):
        assert response.status_code == status
        assert set(response.json()) == {"error"}


def test_every_answer_forbids_guessing_and_keeping(client: TestClient) -> None:
    for response in (client.get("/"), client.get("/nothing"), client.post("/predict"), client.get("/metrics")):
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["cache-control"] == "no-store"


def test_while_it_stops_new_requests_are_refused(client: TestClient) -> None:
    assert client.get("/ready").status_code == 200
    client.service.stopping = True  # type: ignore[attr-defined]
    assert client.get("/ready").status_code == 503
    assert client.get("/health").status_code == 200
    assert client.post("/predict", json=as_json(picture(1))).status_code == 503


def test_a_model_that_fails_is_one_sentence_and_the_service_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(Brightness):
        def answer(self, pictures: Pictures) -> Answers:
            if pictures.max() > 100:
                raise ArithmeticError("too bright")
            return super().answer(pictures)

    with client_of(Failing()) as client:
        failed = client.post("/predict", json=as_json(picture(200)))
        assert failed.status_code == 500
        assert "bright" not in failed.text
        assert "too bright" in caplog.text
        assert labels(client.post("/predict", json=as_json(picture(1)))) == ["class 1"]


def test_the_metrics_count(client: TestClient) -> None:
    client.post("/predict", json=as_json(picture(1), picture(2)))
    client.post("/predict", content=b"x")
    client.get("/a%0Ab%22%7D")
    lines = client.get("/metrics").text.splitlines()
    assert 'certus_requests_total{path="/predict",status="200"} 1' in lines
    assert 'certus_requests_total{path="/predict",status="415"} 1' in lines
    assert 'certus_requests_total{path="other",status="404"} 1' in lines
    assert 'certus_pictures_total{outcome="answered"} 2' in lines
    assert "certus_predict_seconds_count 2" in lines
    assert 'certus_batch_pictures_bucket{le="+Inf"} 1' in lines
    assert "certus_batch_pictures_sum 2" in lines
    assert "certus_waiting_pictures 0" in lines
    typed = {line.split()[2] for line in lines if line.startswith("# TYPE")}
    named = {line.split("{")[0].split()[0] for line in lines if not line.startswith("#")}
    assert {name.removesuffix("_bucket").removesuffix("_sum").removesuffix("_count") for name in named} == typed


def misfit(value: Any, schema: dict[str, Any], whole: dict[str, Any]) -> str:
    """Why a value does not fit a schema of the document; only what the document uses."""
    if "$ref" in schema:
        return misfit(value, whole["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]], whole)
    kinds = {"object": dict, "array": list, "string": str, "number": (int, float), "integer": int, "boolean": bool,
             "null": type(None)}  # fmt: skip
    named = schema.get("type", list(kinds))
    if not isinstance(value, tuple(kinds[k] for k in ([named] if isinstance(named, str) else named))):  # type: ignore[arg-type]
        return f"{value!r} is no {named}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{value!r} is none of {schema['enum']}"
    if isinstance(value, (int, float)) and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        return f"{value} is out of range"
    if isinstance(value, dict):
        known, more = schema.get("properties", {}), schema.get("additionalProperties", True)
        if missing := set(schema.get("required", ())) - set(value):
            return f"without {missing}"
        if more is False and set(value) - set(known):
            return f"{set(value) - set(known)} too many"
        inner = [(v, known.get(k, more if isinstance(more, dict) else {})) for k, v in value.items()]
    else:
        inner = [(v, schema.get("items", {})) for v in value] if isinstance(value, list) else []
    return next((reason for v, s in inner if (reason := misfit(v, s, whole))), "")


@pytest.mark.parametrize("token", ["", TOKEN])
def test_the_document_describes_what_is_answered(token: str) -> None:
    with client_of(Brightness(limit=0.5), token, max_pictures=3) as client:
        client.headers["authorization"] = f"Bearer {token}"
        whole = client.get("/openapi.json").json()
        pictures = whole["paths"]["/predict"]["post"]["requestBody"]["content"]["application/json"]["schema"]
        assert pictures["properties"]["pictures"]["maxItems"] == 3
        requests = [("get", path, {}) for path in whole["paths"] if path != "/predict"]
        requests += [("post", "/predict", {"json": as_json(picture(i))}) for i in range(3)]
        requests += [("post", "/predict", {"json": as_json(*[picture()] * n)}) for n in (0, 4)]
        requests += [("post", "/predict", {"json": {"pictures": [base64.b64encode(b"x").decode()]}})]
        seen = set()
        for headers in ({}, {"authorization": "Bearer wrong", "host": "evil.example"}):
            for verb, path, more in requests:
                response = client.request(verb, path, headers=headers, **more)
                found = whole["paths"][path][verb]["responses"][str(response.status_code)]
                ((kind, content),) = found["content"].items()
                assert response.headers["content-type"].startswith(kind)
                value = response.json() if kind == "application/json" else response.text
                assert not misfit(value, content["schema"], whole), path
                seen.add(response.status_code)
        assert seen == {200, 422, 401 if token else 403}
        assert ("securitySchemes" in whole["components"]) == bool(token)


def test_the_document_names_every_path(client: TestClient) -> None:
    paths = set(json.loads(client.get("/openapi.json").text)["paths"])
    assert paths == {route.path for route in client.service.app().routes}  # type: ignore[attr-defined]
