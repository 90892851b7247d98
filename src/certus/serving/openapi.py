"""The service described by itself, as OpenAPI 3.1: every path, every status, every limit."""

from __future__ import annotations

from typing import Any

from certus import __version__
from certus.serving.answerer import About
from certus.serving.bodies import FIELD, JSON, MULTIPART
from certus.serving.limits import Limits

Schema = dict[str, Any]
TEXT = "text/plain"
REFUSALS = {
    400: "The body cannot be parsed.",
    401: "The token is missing or wrong.",
    403: "The request names another host, or comes from a page of another site.",
    408: "The body did not arrive in time.",
    413: "The body has more bytes than allowed.",
    415: "The content type is not one of the two.",
    422: "The body has another form, too many pictures, or one that cannot be decoded: `picture` is its number.",
    429: "Too many pictures are waiting; Retry-After says when to try again, in seconds.",
    500: "The model failed, or something went wrong that nobody foresaw.",
    503: "The service is stopping.",
    504: "The answer was not ready in time.",
}


def document(about: About, limits: Limits, token: bool) -> Schema:
    guards = [401] if token else [403]
    opened: Schema = {"security": []} if token else {}
    plain = [] if token else guards  # with a token, who may read the open paths does not matter
    found: Schema = {
        "openapi": "3.1.0",
        "info": {
            "title": f"certus: {about.name}",
            "version": __version__,
            "description": "Labels pictures and says how certain each answer is.",
        },
        "paths": {
            "/": {"get": {"summary": "A page for people.", **opened, "responses": answers("text/html", None, plain)}},
            "/predict": {"post": predict(limits, guards)},
            "/model": {"get": get("What answers, and the limits.", ref("Model"), guards)},
            "/health": {"get": {**get("Whether the process runs.", ref("State"), plain), **opened}},
            "/ready": {"get": {**get("Whether requests are accepted.", ref("State"), [*plain, 503]), **opened}},
            "/metrics": {
                "get": {"summary": "Counts and times for Prometheus.", "responses": answers(TEXT, None, guards)}
            },
            "/openapi.json": {"get": get("This document.", {"type": "object"}, guards)},
        },
        "components": {"schemas": schemas(about)},
    }
    if token:
        found["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        found["security"] = [{"token": []}]
    return found


def get(summary: str, schema: Schema, refusals: list[int]) -> Schema:
    return {"summary": summary, "responses": answers(JSON, schema, refusals)}


def answers(kind: str, schema: Schema | None, refusals: list[int]) -> Schema:
    """The responses of an operation."""
    good = {"description": "The answer.", "content": {kind: {"schema": schema or {"type": "string"}}}}
    return {"200": good, **{str(status): refusal(status) for status in sorted(refusals)}}


def refusal(status: int) -> Schema:
    found: Schema = {"description": REFUSALS[status], "content": {JSON: {"schema": ref("Refusal")}}}
    if status == 429:
        found["headers"] = {"Retry-After": {"required": True, "schema": {"type": "integer", "minimum": 1}}}
    if status == 401:
        found["headers"] = {"WWW-Authenticate": {"required": True, "schema": {"const": "Bearer"}}}
    return found


def predict(limits: Limits, guards: list[int]) -> Schema:
    def pictures(item: Schema) -> Schema:
        return {
            "type": "object",
            "required": [FIELD],
            "additionalProperties": False,
            "properties": {FIELD: {"type": "array", "minItems": 1, "maxItems": limits.max_pictures, "items": item}},
        }

    refusals = sorted({*REFUSALS} - {401, 403} | {*guards})
    return {
        "summary": "Label pictures.",
        "description": f"At most {limits.max_pictures} pictures and {limits.max_bytes:,} bytes in one request, and "
        f"{limits.max_pixels:,} pixels in one picture. The answers come in the order of the pictures.",
        "requestBody": {
            "required": True,
            "content": {
                MULTIPART: {"schema": pictures({"type": "string", "contentMediaType": "application/octet-stream"})},
                JSON: {"schema": pictures({"type": "string", "contentEncoding": "base64"})},
            },
        },
        "responses": answers(JSON, ref("Answers"), refusals),
    }


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def record(properties: Schema, optional: tuple[str, ...] = ()) -> Schema:
    required = [name for name in properties if name not in optional]
    return {"type": "object", "required": required, "additionalProperties": False, "properties": properties}


def schemas(about: About) -> Schema:
    share = {"type": "number", "minimum": 0, "maximum": 1}
    label = {"type": "string", "enum": list(about.classes)}
    answer = {
        "label": {**label, "description": "The most likely class."},
        "probabilities": record(dict.fromkeys(about.classes, share)),
        "certainty": {**share, "description": "1 is the most certain."},
        "uncertainty": {
            "type": "object",
            "additionalProperties": {"type": "number"},
            "description": "Every metric that was computed; larger is less certain.",
        },
        "answered": {"type": "boolean", "description": "false: the model is not sure enough, do not use the label."},
    }
    whole = {"type": "integer", "minimum": 1}
    return {
        "Answer": record(answer),
        "Answers": record({"answers": {"type": "array", "items": ref("Answer")}}),
        "Refusal": record({"error": {"type": "string"}, "picture": whole}, optional=("picture",)),
        "State": record({"state": {"enum": ["running", "ready"]}}),
        "Model": record(
            {
                "name": {"type": "string"},
                "certus": {"type": "string"},
                "classes": {"type": "array", "items": label},
                "metric": {"type": "string"},
                "limit": {"type": ["number", "null"]},
                "promise": {"type": "string"},
                "max_pictures": whole,
                "max_bytes": whole,
                "max_pixels": whole,
            }
        ),
    }
