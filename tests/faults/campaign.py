"""What the campaigns against damaged input share: how much is done, what damage looks like, and what may come of it."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from certus.cli.main import main

FULL = os.environ.get("CERTUS_FAULTS") == "full"  # the length of `make faults`
SEED = int(os.environ.get("CERTUS_FAULTS_SEED", "0"))
ODD: tuple[Any, ...] = (
    *(0, -1, 1, 2**31, 2**63, 10**30, 0.0, -0.0, 0.5, 1e-320, 1e308, float("inf"), float("-inf"), float("nan")),
    *("", "x", "\0", "nan", "a" * 3000, None, True, [], [1], {}, {"a": 1}, [[[[]]]]),
)


def flip(data: bytes, r: random.Random) -> bytes:
    """Change one to three bits."""
    damaged = bytearray(data or b"\0")
    for _ in range(r.randint(1, 3)):
        damaged[r.randrange(len(damaged))] ^= 1 << r.randrange(8)
    return bytes(damaged)


def cut(data: bytes, r: random.Random) -> bytes:
    return data[: r.randrange(max(1, len(data)))]


def empty(data: bytes, r: random.Random) -> bytes:  # noqa: ARG001 (every damage has the same arguments)
    return b""


def garbage(data: bytes, r: random.Random) -> bytes:
    return r.randbytes(min(len(data), 4096))


def insert(data: bytes, r: random.Random) -> bytes:
    at = r.randrange(len(data) + 1)
    return data[:at] + r.randbytes(r.randint(1, 9)) + data[at:]


def leave_out(data: bytes, r: random.Random) -> bytes:
    at = r.randrange(max(1, len(data)))
    return data[:at] + data[at + r.randint(1, 40) :]


def repeat(data: bytes, r: random.Random) -> bytes:
    at = r.randrange(max(1, len(data)))
    return data[:at] + data[at : at + r.randint(1, 40)] + data[at:]


def large(data: bytes, r: random.Random) -> bytes:
    """Overwrite four bytes by those of a large number, which may be a length or a count."""
    at = r.randrange(max(1, len(data) - 4))
    return data[:at] + r.choice([b"\xff" * 4, b"\x7f\xff\xff\xff", b"\xff\xff\xff\x7f", b"\0\0\0\x80"]) + data[at + 4 :]


def digits(data: bytes, r: random.Random) -> bytes:
    """Replace one digit by another, which most formats cannot notice."""
    places = [i for i, byte in enumerate(data[:100_000]) if chr(byte).isdigit()]
    if not places:
        return flip(data, r)
    at = r.choice(places)
    return data[:at] + bytes([48 + (data[at] - 48 + r.randint(1, 9)) % 10]) + data[at + 1 :]


DAMAGE: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    flip, cut, empty, garbage, insert, leave_out, repeat, large, digits,
)  # fmt: skip


def odd_json(data: bytes, r: random.Random, unsealed: bool = False) -> bytes:
    """Replace or remove one value of a JSON record, or of one line of several; `unsealed`: and its checksum."""
    *lines, last = data.split(b"\n") if data.startswith(b'{"') else [data]
    at = r.randrange(len(lines)) if lines else -1
    record = json.loads(lines[at] if lines else last)
    if unsealed:
        record.pop("check", None)
    inside, key = record, r.choice(list(record))
    while isinstance(inside[key], dict | list) and inside[key] and r.random() < 0.8:
        inside = inside[key]
        key = r.choice(list(inside)) if isinstance(inside, dict) else r.randrange(len(inside))
    if r.random() < 0.2:
        del inside[key]
    else:
        inside[key] = r.choice(ODD)
    text = json.dumps(record).encode()
    return b"\n".join([*lines[:at], text, *lines[at + 1 :], last]) if lines else text


class Outcome:
    """What a command did: its exit code and its words."""

    def __init__(self, words: Sequence[str]) -> None:
        out, err, heard = io.StringIO(), io.StringIO(), io.StringIO()
        handler = logging.StreamHandler(heard)
        logging.getLogger("certus").addHandler(handler)
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                self.code = main(words)
        finally:
            logging.getLogger("certus").removeHandler(handler)
        self.out, self.err = out.getvalue(), err.getvalue() + heard.getvalue()

    @property
    def kind(self) -> str:
        return "success" if not self.code else "sentence"

    def check(self) -> None:
        """A success, or a sentence with exit code 1 or 2: no traceback, and nothing that the last net had to catch."""
        assert self.code in (0, 1, 2), self.err
        assert "Traceback" not in self.err, self.err
        assert "certus does not expect" not in self.err, self.err
        assert not self.code or "certus: " in self.err, self.err


def chosen(cases: Iterable[Any], most: int, seed: object = "") -> list[Any]:
    """All cases at full length, else a sample of them."""
    found = list(cases)
    return found if FULL or len(found) <= most else random.Random(f"{SEED} {seed}").sample(found, most)


def write(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def tell(capsys: pytest.CaptureFixture[str], what: str, counts: Counter[str]) -> None:
    """Print the counts of a campaign."""
    total = ", ".join(f"{n:,} {kind}" for kind, n in sorted(counts.items()))
    with capsys.disabled():
        print(f"\n{what}, seed {SEED}: {sum(counts.values()):,} ({total})")
