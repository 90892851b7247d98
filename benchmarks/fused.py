"""What do the fused copy and the tree of draws save? CNN-13, images of 32×32, fp32; minima of interleaved rounds.

    python benchmarks/fused.py --widths 128,32,16 --seconds 30

`quick` is the fused copy with QuickDropout. All plans draw from one view, because augmentation costs the same in each.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from certus.certainty.draws import parse
from certus.certainty.streaming import Moments
from certus.networks import network
from certus.networks.fused import Fused
from certus.networks.modes import dropout_only
from certus.networks.stages import stages

SHAPE, CLASSES = (3, 32, 32), 10


def minima(jobs: dict[str, Callable[[], object]], seconds: float) -> dict[str, float]:
    """The shortest time of each, in seconds: all in turn, until the time is up, at least twice."""
    best = dict.fromkeys(jobs, float("inf"))
    end, rounds = time.perf_counter() + seconds, 0
    while rounds < 2 or time.perf_counter() < end:
        for name, job in jobs.items():
            start = time.perf_counter()
            job()
            best[name] = min(best[name], time.perf_counter() - start)
        rounds += 1
    return best


def draw(net: nn.Module, x: torch.Tensor) -> None:
    with dropout_only(net):
        net(x)


def follow(plan: str, parts: list[nn.Module], x: torch.Tensor) -> None:
    def seed(_: str) -> None:
        torch.default_generator.manual_seed(0)

    parse(plan).run(parts, lambda _: x, seed, Moments(len(x), CLASSES))


def measure(width: int, batch: int, seconds: float, plans: list[str]) -> dict[str, Any]:
    rows = network("cnn13", SHAPE, CLASSES, width, 0.5).eval()
    last = network("cnn13", SHAPE, CLASSES, width, 0.5).eval()
    last.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    fused, quick = Fused(rows), Fused(rows, quick=True)
    x = torch.randn(batch, *SHAPE)
    y = x.contiguous(memory_format=torch.channels_last)
    jobs: dict[str, Callable[[], object]] = {
        "eager": partial(rows, x),
        "eager channels_last": partial(last, y),
        "fused": partial(fused, y),
        "refresh": fused.refresh,
        "eager, one draw": partial(draw, rows, x),
        "channels_last, one draw": partial(draw, last, y),
    }
    for plan in plans:
        for name, net in (("fused", fused), ("quick", quick)):
            jobs[f"{name}, {plan}"] = partial(follow, plan, stages(net), y)
    best = minima(jobs, seconds)
    unit, ten = best["eager"], 10 * best["eager, one draw"]
    print(f"\nwidth {width}: one eager forward {1e3 * unit:.1f} ms, ten eager draws {1e3 * ten:.1f} ms")
    for name, value in best.items():
        gain = f"{ten / value:6.2f}× ten eager draws" if ":" in name else f"{unit / value:6.2f}× eager"
        print(f"  {name:24} {1e3 * value:9.2f} ms  {value / unit:7.3f} forwards  {gain}", flush=True)
    for plan in plans:
        print(f"  {plan} is {parse(plan).cost(stages(rows), SHAPE):.2f} forwards by multiply-adds")
    return {"width": width, "ms": {name: round(1e3 * value, 3) for name, value in best.items()}}


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--widths", default="128,32,16")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--plans", default="independent:10,tree:1x4x10")
    parser.add_argument("--seconds", type=float, default=15.0, help="per width; two rounds at least")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    plans = args.plans.split(",")
    measured = [measure(int(width), args.batch, args.seconds, plans) for width in args.widths.split(",")]
    print(json.dumps({"threads": args.threads, "batch": args.batch, "torch": torch.__version__, "measured": measured}))


if __name__ == "__main__":
    main()
