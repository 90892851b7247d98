"""A service as a process, and clients that ask it over raw sockets: many at once, one request after the other each."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

READING = 1 << 16


@dataclass
class Load:
    """What clients have seen."""

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    statuses: dict[int, int] = field(default_factory=dict)
    lost: int = 0  # requests without an answer
    bodies: list[bytes] = field(default_factory=list)

    @property
    def per_second(self) -> float:
        return self.statuses.get(200, 0) / self.seconds

    def quantile(self, share: float) -> float:
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


class Served:
    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process, self.port = process, port

    def resident(self) -> int:
        """Bytes of memory."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def seconds(self) -> float:
        """Of the processor, so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def served(model: Path, *words: str) -> Iterator[Served]:
    command = [sys.executable, "-m", "certus", "serve", str(model), *words]
    if "--port" not in words:
        command += ["--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    line = process.stdout.readline()
    found = re.search(r":(\d+) ", line)
    if not found:
        raise SystemExit(f"The service did not start: {line}")
    try:
        yield Served(process, int(found[1]))
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(60)


def post(body: bytes, kind: str = "application/json") -> bytes:
    head = f"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def form(picture: bytes) -> bytes:
    """A request with one picture as a file."""
    head = b'--b\r\nContent-Disposition: form-data; name="pictures"; filename="a.png"\r\n\r\n'
    return post(head + picture + b"\r\n--b--\r\n", "multipart/form-data; boundary=b")


async def answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Status and body of one response."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head, re.I)
    body = await reader.readexactly(int(length[1])) if length else await reader.read()
    return int(head.split(b" ", 2)[1]), body


async def client(port: int, requests: Sequence[bytes], until: float, load: Load, first: int, keep: bool) -> None:
    """Ask until the time is over; a lost connection is made again."""
    writer: asyncio.StreamWriter | None = None
    number = first
    while time.perf_counter() < until:
        start = time.perf_counter()
        try:
            if writer is None:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(requests[number % len(requests)])
            status, body = await answer(reader)
        except (OSError, EOFError, ValueError):
            load.lost += 1
            if writer:
                writer.close()
            writer = None
            await asyncio.sleep(0.02)
            continue
        load.latencies.append(time.perf_counter() - start)
        load.statuses[status] = load.statuses.get(status, 0) + 1
        if keep:
            load.bodies.append(body)
        number += 1
    if writer:
        writer.close()


async def clients(port: int, requests: Sequence[bytes], count: int, seconds: float, keep: bool = False) -> Load:
    """So many clients at once."""
    load, start = Load(), time.perf_counter()
    every = (client(port, requests, start + seconds, load, i * 7, keep) for i in range(count))
    await asyncio.gather(*every)
    load.seconds = time.perf_counter() - start
    return load
