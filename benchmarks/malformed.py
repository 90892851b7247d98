"""Requests that a service must refuse: fuzzed from its own OpenAPI document, by hand, and as raw bytes.

`request(random, document)` is one of them as (method, path, headers, body). `raw(random)` is hardly HTTP.
"""

from __future__ import annotations

import base64
import io
import json
import random as randomness
import struct
import zlib
from typing import Any

from PIL import Image

Request = tuple[str, str, dict[str, str], bytes]
Random = randomness.Random
TEXTS = ("", "\0", "é", "\ud800", "../../etc/passwd", "' OR 1=1", "{{7*7}}", "%00", "a" * 5000, "=" * 9, "AAAA", "-1")
FORMATS = ("PNG", "JPEG", "GIF", "BMP", "WEBP", "TIFF", "PPM", "TGA", "PCX", "SGI", "JPEG2000")
KINDS = ("application/json", "multipart/form-data; boundary=b", "text/plain", "", "multipart/form-data", "image/png",
         "application/json; charset=utf-7", "multipart/form-data; boundary=" + "b" * 200, "APPLICATION/JSON", ";;=",
         "multipart/mixed; boundary=b", "application/x-www-form-urlencoded")  # fmt: skip


def picture(r: Random, kind: str = "PNG") -> bytes:
    file = io.BytesIO()
    size = (r.randint(1, 40), r.randint(1, 40))
    Image.frombytes("RGB", size, r.randbytes(3 * size[0] * size[1])).save(file, kind)
    return file.getvalue()


def damaged(r: Random) -> bytes:
    """A picture file that was cut, changed, mixed or blown up."""
    data = bytearray(picture(r, r.choice(FORMATS)))
    match r.randrange(6):
        case 0:
            return bytes(data[: r.randrange(len(data))])
        case 1:
            for _ in range(r.randint(1, 20)):
                data[r.randrange(len(data))] = r.randrange(256)
            return bytes(data)
        case 2:
            return bytes(data[: r.randrange(40)]) + r.randbytes(r.randrange(200))
        case 3:
            at = r.randrange(len(data))
            return bytes(data[:at] + data[at // 2 :] * 3)
        case 4:
            return bomb(r)
    return r.randbytes(r.randrange(300))


def bomb(r: Random) -> bytes:
    """A small PNG that says it has very many pixels."""
    head = struct.pack(">IIBBBBB", r.randint(5_000, 2**31 - 1), r.randint(5_000, 2**31 - 1), 8, 2, 0, 0, 0)
    rows = zlib.compress(bytes(r.randint(1, 200_000)))

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def anything(r: Random, depth: int = 3) -> Any:
    """Some JSON."""
    leaves = [None, True, 0, -1, 1e308, 2**70, r.random(), r.choice(TEXTS), base64.b64encode(damaged(r)).decode()]
    if depth == 0 or r.random() < 0.5:
        return r.choice(leaves)
    inner = [anything(r, depth - 1) for _ in range(r.randrange(5))]
    return inner if r.random() < 0.5 else {r.choice([*TEXTS, "pictures", "error"]): value for value in inner}


def near(schema: dict[str, Any], r: Random) -> Any:
    """A value that nearly has this form."""
    if r.random() < 0.15:
        return anything(r)
    match schema.get("type"):
        case "object":
            found = {name: near(inner, r) for name, inner in schema["properties"].items() if r.random() < 0.9}
            return found | ({r.choice(TEXTS): anything(r)} if r.random() < 0.2 else {})
        case "array":
            most = schema.get("maxItems", 4)
            return [near(schema["items"], r) for _ in range(r.choice([0, 1, 2, 3, most, most + 1]))]
    text = base64.b64encode(damaged(r)).decode()
    return text if r.random() < 0.7 else text[: r.randrange(len(text) + 1)] + r.choice(TEXTS)


def form(r: Random) -> bytes:
    """A multipart body in which something may be wrong."""
    name = r.choice(["pictures", "pictures", "pictures", "picture", "", "a" * 5000])
    head = f'Content-Disposition: form-data; name="{name}"; filename="{r.choice(["a.png", "", "é", "a" * 300])}"'
    body = b""
    for _ in range(r.choice([0, 1, 1, 2, 40])):
        body += b"--b\r\n" + head.encode() + b"\r\n" * r.choice([1, 2, 2, 2]) + damaged(r) + b"\r\n"
    body += r.choice([b"--b--\r\n", b"--b--", b"--b", b"", b"--c--\r\n"])
    return body[: r.randrange(len(body) + 1)] if r.random() < 0.3 else body


def request(r: Random, document: dict[str, Any]) -> Request:
    schema = document["paths"]["/predict"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    choice, headers = r.random(), {"Host": "localhost"}
    if choice < 0.45:
        value = near(schema, r) if r.random() < 0.8 else anything(r)
        body = json.dumps(value).encode("utf-8", "surrogatepass")
        headers["Content-Type"] = "application/json"
    elif choice < 0.85:
        body, headers["Content-Type"] = form(r), "multipart/form-data; boundary=b"
    else:
        body = r.choice(
            [b"", b"{", b"[" * r.randint(1, 50_000), b"9" * 6000, r.randbytes(r.randrange(2000)), b"\xff\xfe"]
        )
        headers["Content-Type"] = r.choice(KINDS)
    if r.random() < 0.1:
        headers["Content-Type"] = r.choice(KINDS)
    if r.random() < 0.05:
        headers |= r.choice([{"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"Origin": "null"},
                             {"Authorization": "Bearer x"}, {"Accept": "x" * 3000}])  # fmt: skip
    if r.random() < 0.06:
        method, path = (
            r.choice(["GET", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH", "TRACE"]),
            r.choice(
                ["/predict", "/predict/", "/%00", "/../../etc/passwd", "/model?x=" + "a" * 2000, "/metrics", "//", "/é"]
            ),
        )
        return method, path, headers, b"" if method in ("HEAD", "GET") else body
    return "POST", "/predict", headers, body


def raw(r: Random) -> bytes:
    """Bytes that are hardly HTTP."""
    good = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return r.choice(
        [
            r.randbytes(r.randint(1, 300)),
            good + b"Content-Length: -5\r\n\r\n",
            good + b"Content-Length: 99999999999999999999\r\n\r\n{}",
            good + b"Content-Length: 10\r\nContent-Length: 20\r\n\r\n{}",
            good + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n",
            good + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
            good + b"X: " + b"a" * 100_000 + b"\r\n\r\n",
            b"GET / HTTP/9.9\r\n\r\n",
            b"GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n",
            b"\r\n" * 50,
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        ]
    )
