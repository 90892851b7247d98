"""What is a start from RotNet worth to supervised learning on digits? Validation error without and with it, by seed.

    python benchmarks/pretraining.py --seeds 20

docs/data.md has the result: −1.23 points [−3.07, +0.62], n = 20, 2 cores.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
import tyro

from certus.config import resolve
from certus.report.statistics import paired
from certus.training.build import build
from certus.training.loop import train
from certus.training.planning import complete
from certus.training.run_folder import RunFolder


@dataclass(frozen=True)
class Args:
    seeds: int = 20
    epochs: float = 20


def errors(seed: int, epochs: float, folder: Path) -> list[float]:
    """From random weights, and from RotNet."""
    common = {"seed": seed, "threads": 1}
    train(build(complete(resolve({"method": "rotation", "validation": 0, **common}), epochs)), RunFolder(folder))
    found: list[float] = []
    for init in ("", str(folder)):
        learning = build(complete(resolve({"method": "supervised", "init": init, **common}), epochs))
        for number in range(learning.config.steps):
            learning.advance(number)
        found += learning.validation_errors()
    return found


if __name__ == "__main__":
    args = tyro.cli(Args, description=__doc__)
    torch.set_num_threads(1)
    plain: dict[int, float] = {}
    started: dict[int, float] = {}
    for seed in range(args.seeds):
        with tempfile.TemporaryDirectory() as folder:
            plain[seed], started[seed] = errors(seed, args.epochs, Path(folder) / "rotnet")
        print(f"seed {seed}: {plain[seed]:.1f} from random weights, {started[seed]:.1f} from RotNet", flush=True)
    print(f"difference {paired(started, plain)}, n = {args.seeds}")
