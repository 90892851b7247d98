"""What the engine's parts are worth: images a second, whether bfloat16 ranks as fp32 does, and memory.

    python benchmarks/engine.py --data-dir DATA

1. Images a second of a supervised training step of `sprint`, by processor time of one thread, in turn, the least of n
   rounds: eager fp32 with channels first, as one would write it down, against the engine's steps.
2. A network is trained for some steps. Then the same draws, with the same dropout, rank 1,536 unlabelled images in fp32
   and in bfloat16: Spearman's ρ of the two, and of two different sets of draws in fp32, which is the most that one can
   expect.
3. Peak resident memory of a whole Mean Teacher run on CIFAR-10 in a process of its own.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from collections.abc import Callable

import torch
from scipy.stats import spearmanr
from torch import Tensor, nn
from torch.nn import functional as F

from certus.certainty.draws import Tree
from certus.certainty.streaming import Moments
from certus.config import resolve
from certus.core.step import Batch, Step
from certus.networks import network
from certus.networks.precision import autocast
from certus.training.build import build
from certus.training.memory import freed_memory_kept
from certus.training.planning import complete
from certus.training.run import Run

METRICS = ("pv", "ev", "pe", "mi")
BATCH, IMAGES = 256, 1536


def plain_step() -> Callable[[], None]:
    """Eager fp32, channels first."""
    net = network("sprint", (3, 32, 32), 10, 128, 0.1)
    optimiser = torch.optim.SGD(net.parameters(), 0.01, momentum=0.9, nesterov=True)
    x, y = torch.randn(BATCH, 3, 32, 32), torch.randint(0, 10, (BATCH,))

    def step() -> None:
        optimiser.zero_grad(set_to_none=True)
        F.cross_entropy(net(x), y).backward()
        optimiser.step()

    return step


def our_step(precision: str, data_dir: str) -> Callable[[], None]:
    """A whole step of a run: batch, views, Muon and all."""
    given = {"data": "cifar10", "data_dir": data_dir, "method": "supervised", "labelled_batch": BATCH, "steps": 10_000}
    run = build(complete(resolve({**given, "threads": 1, "precision": precision})))
    numbers = iter(range(10_000))

    def step() -> None:
        run.advance(next(numbers))

    return step


def speed(data_dir: str, rounds: int) -> None:
    steps = {
        "eager fp32": plain_step(),
        "certus fp32": our_step("fp32", data_dir),
        "certus bf16": our_step("bf16", data_dir),
    }
    least = dict.fromkeys(steps, float("inf"))
    with freed_memory_kept():
        for _ in range(rounds + 1):
            for name, step in steps.items():
                start = time.process_time()
                step()
                least[name] = min(least[name], time.process_time() - start)
    for name, seconds in least.items():
        gain = least["eager fp32"] / seconds
        print(f"{name}: {BATCH / seconds:.0f} images a second, {gain:.2f} × (n = {rounds})")


def ranks(data_dir: str, steps: int) -> None:
    run = trained(data_dir, steps)
    (net,) = run.method.answers
    for name in ("tree:1x1x4", "tree:1x1x10"):
        plan = Tree(tuple(int(n) for n in name.split(":")[1].split("x")))
        full, half, again = (
            uncertainty(run, net, plan, p, seed) for p, seed in (("fp32", 0), ("bf16", 0), ("fp32", 1))
        )
        for metric in METRICS:
            same = spearmanr(full[metric], half[metric]).statistic
            most = spearmanr(full[metric], again[metric]).statistic
            print(
                f"{metric.upper()} of {name}: ρ = {same:.4f} between fp32 and bf16, {most:.4f} between two fp32 draws"
            )


def trained(data_dir: str, steps: int) -> Run:
    """With a warm-up of a third, so that both kinds of step take part."""
    given = {"data": "cifar10", "data_dir": data_dir, "method": "mean-teacher", "threads": 1}
    run = build(complete(resolve({**given, "steps": steps, "warm_up": 0.33})))
    with freed_memory_kept():
        for number in range(steps):
            run.advance(number)
    print(f"validation error after {steps} steps: {run.validation_errors()[0]:.1f} %")
    return run


def uncertainty(run: Run, net: nn.Module, plan: Tree, precision: str, seed: int) -> dict[str, Tensor]:
    index = run.split.unlabelled[:IMAGES]
    images = run.data.normalised(run.images[index])
    step = Step(Batch(images, torch.full((len(index),), -1), index), run.clock(0), run.views, seed)
    moments = Moments(len(index), 10, images.device)
    with autocast(precision, "cpu"):
        step.draw(net, "b", plan, moments)
    return {name: getattr(moments, name) for name in METRICS}


def memory(data_dir: str, steps: int) -> None:
    words = [sys.executable, __file__, "--data-dir", data_dir, "--steps", str(steps), "--only", "run"]
    print(subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", default="")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--only", choices=("speed", "ranks", "memory", "run"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.only in (None, "speed"):
        speed(args.data_dir, args.rounds)
    if args.only in (None, "ranks"):
        ranks(args.data_dir, args.steps)
    if args.only in (None, "memory"):
        memory(args.data_dir, 30)
    if args.only == "run":
        trained(args.data_dir, args.steps)
        print(f"peak memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


if __name__ == "__main__":
    main()
