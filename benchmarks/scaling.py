"""What do two processes of one thread give over one process of two threads, and what do their messages cost?

    python benchmarks/scaling.py --seconds 120

Training steps of ft-ccl on random pictures of 32×32, fp32. All arms are built once; then they take turns, a few steps
each, while the others wait. The time of a step is the shortest mean of a turn. `talking` is the share of it in which
the first process sends, receives or waits for the other one. Memory is the peak of one process.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from certus.config import resolve
from certus.data import Dataset, Part
from certus.distributed.team import ALONE, Processes, Team
from certus.training.build import build_on
from certus.training.planning import complete_on
from certus.training.run import Run

ARMS = {"1 process, 1 thread": (1, 1), "1 process, 2 threads": (1, 2), "2 processes, 1 thread": (2, 1)}
NETWORKS = {"cnn13": 32, "sprint": 128}  # and their widths
STEPS = 3  # in a turn
talking = 0.0  # seconds


def timed(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function; its time counts as talking."""

    def call(*given: Any, **more: Any) -> Any:
        global talking
        start = time.perf_counter()
        try:
            return function(*given, **more)
        finally:
            talking += time.perf_counter() - start

    return call


def mean_gradient(_: None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """What DistributedDataParallel does with a bucket, but at once, so that it can be timed."""
    dist.all_reduce(bucket.buffer())  # timed like the other messages
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(bucket.buffer().div_(dist.get_world_size()))
    return done


def build(network: str, batch: int, team: Team, threads: int) -> Run:
    random = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (2000, 3, 32, 32), dtype=torch.uint8, generator=random)
    part = Part(images, torch.randint(0, 10, (2000,), generator=random))
    data = Dataset("random pictures", tuple("0123456789"), part, Part(images[:0], part.labels[:0]))
    settings = {"network": network, "width": NETWORKS[network], "labelled_batch": batch // 4, "precision": "fp32"}
    given = {"data": "digits", "method": "ft-ccl", "labels": 400, "validation": 0, "warm_up": 0.0, "steps": 100_000}
    config = resolve({**given, **settings, "unlabelled_batch": batch - batch // 4, "threads": threads, "size": 32})
    return build_on(data, complete_on(data, config), team=team)


def member(rank: int, size: int, threads: int, network: str, batch: int, store: str, line: Connection) -> None:
    """One process: on each word it trains a turn, and sends how long it took."""
    global talking
    torch.set_num_threads(threads)
    team: Team = ALONE
    if size > 1:
        shared = dist.FileStore(store, size)
        dist.init_process_group("gloo", store=shared, rank=rank, world_size=size)
        team = Processes.of(rank, size, shared)
        for name in ("all_gather_single", "all_reduce", "broadcast"):
            setattr(dist, name, timed(getattr(dist, name)))
    run = build(network, batch, team, threads)
    if isinstance(run.losses, DistributedDataParallel):
        run.losses.register_comm_hook(None, lambda state, bucket: mean_gradient(state, bucket))
    number = 0
    while line.recv():
        talking, start = 0.0, time.perf_counter()
        for _ in range(STEPS):
            run.advance(number)
            number += 1
        spent = time.perf_counter() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        weights = sum(p.numel() for net in run.method.students for p in net.parameters())
        line.send({"step": spent / STEPS, "talking": talking / spent, "megabytes": peak, "weights": weights})


class Arm:
    """The processes of one arm."""

    def __init__(self, size: int, threads: int, network: str, batch: int) -> None:
        context, store = multiprocessing.get_context("spawn"), str(Path(mkdtemp(prefix="scaling-")) / "store")
        self.lines = []
        for rank in range(size):
            ours, theirs = context.Pipe()
            words = (rank, size, threads, network, batch, store, theirs)
            context.Process(target=member, args=words, daemon=True).start()
            self.lines.append(ours)

    def turn(self) -> dict[str, float]:
        for line in self.lines:
            line.send(True)
        first, *_ = [line.recv() for line in self.lines]
        return first


def measure(network: str, batch: int, seconds: float) -> dict[str, Any]:
    arms = {name: Arm(*shape, network, batch) for name, shape in ARMS.items()}
    best: dict[str, dict[str, float]] = {}
    end, rounds = time.monotonic() + seconds, 0
    while rounds < 3 or time.monotonic() < end:
        for name, arm in arms.items():
            found = arm.turn()
            if rounds and (name not in best or found["step"] < best[name]["step"]):  # the first turn only warms up
                best[name] = found
        rounds += 1
    for arm in arms.values():
        for line in arm.lines:
            line.send(False)
    return {name: {**found, "images per second": batch / found["step"]} for name, found in best.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--seconds", type=float, default=120.0, help="for each network")
    options = parser.parse_args()
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # as under torchrun
    for network in options.networks.split(","):
        found = measure(network, options.batch, options.seconds)
        print(json.dumps({"network": network, "width": NETWORKS[network], "batch": options.batch, "arms": found}))
        for name, f in found.items():
            print(
                f"{network:8} {name:22} {f['images per second']:7.1f} images/s  {1000 * f['step']:7.0f} ms/step  "
                f"{f['megabytes']:5.0f} MB per process  talking {100 * f['talking']:.0f} %"
            )


if __name__ == "__main__":
    main()
