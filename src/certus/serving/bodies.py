"""The pictures of a request: multipart files, or a JSON list of base64. Every limit is kept while the body arrives."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from certus.serving.limits import Limits
from certus.serving.refusal import Refusal

FIELD = "pictures"
MULTIPART, JSON = "multipart/form-data", "application/json"
HEADER_BYTES = 4096  # of one part
SMALL = 100_000  # bytes that are parsed at once; to hand them to a thread would take longer


class Held:
    """The bytes of all requests that are in memory."""

    def __init__(self, most: int) -> None:
        self.most, self.bytes = most, 0

    def take(self, count: int) -> None:
        if self.bytes + count > self.most:
            raise Refusal(429, "Too many requests are being read: try again in 1 s.", {"Retry-After": "1"})
        self.bytes += count


async def read_body(stream: AsyncIterator[bytes], announced: str | None, limits: Limits, held: Held) -> bytes:
    """The body, no longer than `max_bytes`. What it takes of `held` is the length of what it returns, or nothing."""
    if announced is not None and announced.isdecimal() and len(announced) < 19 and int(announced) > limits.max_bytes:
        raise too_long(limits)
    body = bytearray()
    try:
        async for chunk in stream:
            if len(body) + len(chunk) > limits.max_bytes:
                raise too_long(limits)
            held.take(len(chunk))
            body += chunk
    except BaseException:
        held.bytes -= len(body)
        raise
    return bytes(body)


def too_long(limits: Limits) -> Refusal:
    return Refusal(413, f"A request may have {limits.max_bytes:,} bytes: send fewer or smaller pictures.")


async def pictures_of(kind: str, body: bytes, limits: Limits) -> list[bytes]:
    """The files of the pictures in a body of this content type."""
    name, options = parse_options_header(kind)
    if name == JSON.encode():
        parse = partial(from_json, body, limits.max_pictures)
    elif name == MULTIPART.encode():
        parse = partial(from_multipart, body, options.get(b"boundary", b""), limits.max_pictures)
    else:
        raise Refusal(415, f"Pictures are sent as {MULTIPART} or as {JSON}: set Content-Type.")
    found = parse() if len(body) <= SMALL else await asyncio.to_thread(parse)
    if not found:
        raise Refusal(422, f"The request has no picture: send at least one as {FIELD}.")
    return found


def from_json(body: bytes, most: int) -> list[bytes]:
    form = f'send {{"{FIELD}": [BASE64, …]}}'
    try:
        value: Any = json.loads(body)
    except (ValueError, RecursionError):
        raise Refusal(400, f"The body is not JSON: {form}.") from None
    if not isinstance(value, dict) or set(value) != {FIELD} or not isinstance(value[FIELD], list):
        raise Refusal(422, f"The JSON has another form than it should: {form}.")
    texts = value[FIELD]
    check_count(len(texts), most)
    found = []
    for number, text in enumerate(texts, 1):
        try:
            if not isinstance(text, str):
                raise ValueError
            found.append(base64.b64decode(text, validate=True))
        except (ValueError, binascii.Error):
            raise Refusal(422, f"Picture {number} is not base64: {form}.", picture=number) from None
    return found


def from_multipart(body: bytes, boundary: bytes, most: int) -> list[bytes]:
    parts = Parts(most)
    try:
        parser = MultipartParser(boundary, parts.callbacks())  # type: ignore[arg-type]
        parser.write(body)
        parser.finalize()
    except FormParserError:
        raise Refusal(400, f"The body is not {MULTIPART}, or was cut short: send each picture as a file.") from None
    if not parts.complete:
        raise Refusal(400, f"The body is not {MULTIPART}, or was cut short: send each picture as a file.")
    return parts.pictures


class Parts:
    """What the parser of multipart bodies has found."""

    def __init__(self, most: int) -> None:
        self.most, self.pictures, self.complete = most, list[bytes](), False
        self.name, self.value, self.disposition = bytearray(), bytearray(), b""
        self.data = bytearray()

    def callbacks(self) -> dict[str, Any]:
        names = "part_begin part_data part_end header_field header_value header_end headers_finished end".split()
        return {f"on_{name}": getattr(self, name) for name in names}

    def part_begin(self) -> None:
        check_count(len(self.pictures) + 1, self.most)
        self.disposition, self.data = b"", bytearray()

    def header_field(self, data: bytes, start: int, end: int) -> None:
        self.name += data[start:end]
        self.check_header()

    def header_value(self, data: bytes, start: int, end: int) -> None:
        self.value += data[start:end]
        self.check_header()

    def check_header(self) -> None:
        if len(self.name) + len(self.value) > HEADER_BYTES:
            raise Refusal(400, f"A header of a part has more than {HEADER_BYTES:,} bytes.")

    def header_end(self) -> None:
        if self.name.lower() == b"content-disposition":
            self.disposition = bytes(self.value)
        self.name, self.value = bytearray(), bytearray()

    def headers_finished(self) -> None:
        _, options = parse_options_header(self.disposition)
        if options.get(b"name") != FIELD.encode():
            raise Refusal(422, f"Every part must be named {FIELD}: send each picture as a file of that name.")

    def part_data(self, data: bytes, start: int, end: int) -> None:
        self.data += data[start:end]

    def part_end(self) -> None:
        self.pictures.append(bytes(self.data))

    def end(self) -> None:
        self.complete = True


def check_count(count: int, most: int) -> None:
    if count > most:
        raise Refusal(422, f"A request may have {most} pictures: send the others in another one.")
