"""What `certus serve` does under load, on this machine alone.

    python benchmarks/serving.py RUN                    pictures per second and latency, against a plain loop
    python benchmarks/serving.py RUN --onnx             the same for the exported model too
    python benchmarks/serving.py RUN --soak 10          ten minutes of load: does the memory grow?
    python benchmarks/serving.py RUN --fuzz 10000       malformed requests beside good ones
    python benchmarks/serving.py RUN --kill 5           kill and restart under load, five times

The clients run in this process, so they share the machine with the service. Rates are those of the best of several
rounds, and ratios compare neighbours of one round, because other programs take time from both.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import socket
import statistics
import time
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import torch
from loading import Load, Served, answer, clients, form, post, served
from malformed import picture, raw, request

import certus
from certus.data.decode import as_channels, decode_bytes, quiet
from certus.export import export
from certus.training.run_folder import RunFolder

CONCURRENCY = (1, 8, 64)
PICTURES = 64  # different ones


def plain_loop(run: Path, files: list[bytes], draws: int, seconds: float) -> float:
    """Pictures per second, decoded and answered one after the other by the library."""
    model, fit, seed = certus.load(run), RunFolder(run).load_config().fit, 0
    channels, size = model.shape[:2]
    torch.set_num_threads(1)
    with quiet():
        for warm in (True, False):
            start, count = time.perf_counter(), 0
            while time.perf_counter() - start < (0.3 if warm else seconds):
                pixels = as_channels(decode_bytes(files[count % len(files)], size, fit).pixels, channels)
                model.predict(np.stack([pixels]), draws, seed)
                count += 1
            rate = count / (time.perf_counter() - start)
    return rate


def exported(run: Path, draws: int) -> Path:
    """The run as an ONNX file."""
    file = Path(mkdtemp()) / f"{run.name}-{draws}.onnx"
    export(run, file, draws=draws)
    return file


def speed(run: Path, onnx: bool, files: list[bytes], seconds: float, rounds: int) -> list[dict[str, Any]]:
    requests = [form(data) for data in files]
    rows: list[dict[str, Any]] = []
    for draws in (0, 10):
        arms = {"torch": run} | ({"onnx": exported(run, draws)} if onnx else {})
        for name, model in arms.items():
            found: dict[int, list[tuple[float, float, Load]]] = {n: [] for n in CONCURRENCY}
            with served(model, "--draws", str(draws), "--threads", "1") as service:
                asyncio.run(clients(service.port, requests, 8, 1.0))
                for _ in range(rounds):
                    loop = plain_loop(run, files, draws, seconds / 2)
                    for n in CONCURRENCY:
                        before = service.seconds()
                        load = asyncio.run(clients(service.port, requests, n, seconds))
                        cost = (service.seconds() - before) / max(1, load.statuses.get(200, 0))
                        assert set(load.statuses) == {200}, load.statuses
                        assert not load.lost
                        found[n].append((load.per_second / loop, cost, load))
            for n, each in found.items():
                best = max((load for _, _, load in each), key=lambda load: load.per_second)
                row = {
                    "model": name,
                    "draws": draws,
                    "clients": n,
                    "pictures_per_second": round(best.per_second, 1),
                    "ratio": round(statistics.median(ratio for ratio, _, _ in each), 2),
                    "ratios": [round(ratio, 2) for ratio, _, _ in each],
                    "p50_ms": round(1000 * min(load.quantile(0.5) for _, _, load in each), 1),
                    "p99_ms": round(1000 * min(load.quantile(0.99) for _, _, load in each), 1),
                    "cpu_ms": round(1000 * min(cost for _, cost, _ in each), 2),
                }
                rows.append(row)
                print(json.dumps(row), flush=True)
    return rows


def soak(service: Served, requests: list[bytes], minutes: float) -> dict[str, Any]:
    """Load without a pause; the memory after every tenth of the time."""
    asyncio.run(clients(service.port, requests, 16, min(20.0, 6 * minutes)))
    memory, count, bad = [service.resident()], 0, 0
    for _ in range(10):
        load = asyncio.run(clients(service.port, requests, 16, 6 * minutes))
        count += load.statuses.get(200, 0)
        bad += load.lost + sum(n for status, n in load.statuses.items() if status != 200)
        memory.append(service.resident())
        print(f"  {count:,} pictures, {memory[-1] / 1e6:.1f} MB", flush=True)
    return {"minutes": minutes, "pictures": count, "not_200": bad, "memory_mb": [round(m / 1e6, 1) for m in memory]}


async def fuzz(service: Served, count: int, seed: int, good: bytes) -> dict[str, Any]:
    """Malformed requests, eight at a time, beside one client whose good request must always get the same answer."""
    _, text = await one(service.port, b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n")
    document, (_, expected) = json.loads(text), await one(service.port, good)
    statuses: dict[str, int] = {}
    state = {"left": count, "good": 0, "wrong": 0}

    async def attacker(number: int) -> None:
        r = random.Random(f"{seed} {number}")
        while state["left"] > 0:
            state["left"] -= 1
            if r.random() < 0.1:
                outcome = await careless(service.port, raw(r))
            else:
                method, path, headers, body = request(r, document)
                lines = [f"{method} {path} HTTP/1.1", *(f"{k}: {v}" for k, v in headers.items() if v)]
                head = "\r\n".join([*lines, f"Content-Length: {len(body)}"]).encode("utf-8") + b"\r\n\r\n"
                outcome = await careless(service.port, head + body)
            statuses[outcome] = statuses.get(outcome, 0) + 1

    async def friend() -> None:
        while state["left"] > 0:
            status, body = await one(service.port, good)
            state["good"] += 1
            state["wrong"] += status != 200 or not same(body, expected)

    await asyncio.gather(*(attacker(i) for i in range(8)), friend())
    alive = service.process.poll() is None
    return {"malformed": count, "statuses": dict(sorted(statuses.items())), **state, "alive": alive, "seed": seed}


def same(one: bytes, other: bytes) -> bool:
    """The same labels, and numbers that differ by rounding at most: batches have other sizes."""
    a, b = (json.loads(text)["answers"][0] for text in (one, other))
    return a["label"] == b["label"] and all(
        abs(a["probabilities"][name] - p) < 1e-4 for name, p in b["probabilities"].items()
    )


async def one(port: int, data: bytes) -> tuple[int, bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    try:
        return await answer(reader)
    finally:
        writer.close()


async def careless(port: int, data: bytes) -> str:
    """The status that a malformed request gets; some clients leave before it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        head = await asyncio.wait_for(reader.read(200), 5 if len(data) < 100_000 else 20)
        return head.split(b" ", 2)[1].decode() if head.startswith(b"HTTP/") else "closed"
    except TimeoutError:
        return "still waiting for the rest"
    except OSError:
        return "closed"
    finally:
        writer.close()


def kills(run: Path, requests: list[bytes], times: int) -> dict[str, Any]:
    """SIGKILL under load and a new start at the same port: what eight clients see, who ask again what they lost."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words, away, over = ("--draws", "0", "--threads", "1", "--port", str(port)), [], []

    def trouble() -> None:
        for _ in range(times):
            with served(run, *words) as service:
                time.sleep(2)
                service.process.kill()
            start = time.perf_counter()
            with served(run, *words):
                away.append(round(time.perf_counter() - start, 1))
                time.sleep(2)
        over.append(True)

    async def both() -> Load:
        total = Load()
        work = asyncio.create_task(asyncio.to_thread(trouble))
        while not over and not work.done():
            load = await clients(port, requests, 8, 1.0)
            total.lost += load.lost
            for status, n in load.statuses.items():
                total.statuses[status] = total.statuses.get(status, 0) + n
        await work
        return total

    total = asyncio.run(both())
    return {"kills": times, "statuses": total.statuses, "not_connected": total.lost, "seconds_until_back": away}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--onnx", action="store_true")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--soak", type=float, metavar="MINUTES")
    parser.add_argument("--fuzz", type=int, metavar="REQUESTS")
    parser.add_argument("--kill", type=int, metavar="TIMES")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    r = random.Random(0)
    files = [picture(r) for _ in range(PICTURES)]
    requests = [form(data) for data in files]
    found: Any
    if given.soak:
        with served(exported(given.run, 10) if given.onnx else given.run, "--threads", "1") as service:
            found = soak(service, requests, given.soak)
    elif given.fuzz:
        import base64

        good = post(json.dumps({"pictures": [base64.b64encode(files[0]).decode()]}).encode())
        with served(given.run, "--draws", "0", "--threads", "1") as service:
            found = asyncio.run(fuzz(service, given.fuzz, given.seed, good))
    elif given.kill:
        found = kills(given.run, requests, given.kill)
    else:
        found = speed(given.run, given.onnx, files, given.seconds, given.rounds)
    print(json.dumps(found, indent=1))
    if given.out:
        given.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
