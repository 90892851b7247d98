"""Which shape of `sprint` is best after equal minutes? Validation errors of supervised learning, one shape an arm.

    python benchmarks/networks.py --data-dir DATA
    python benchmarks/networks.py --report

The first command trains. It can be stopped at any time, and the same command goes on with what is missing: every
finished cell (task, arm, minutes, seed) is a row of OUT/runs.csv. The second one only reads that file and prints a
table for each length. A minute is that of benchmarks/minutes.py. The test set is never read: errors are those of 5,000
training images that are kept apart.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from pathlib import Path
from statistics import fmean

from minutes_report import Cell
from resumable import TWO_CORES, Benchmark, Given, Result, Row, answer, check_names, length, names, read
from torch import Tensor, nn

from certus.config import resolve
from certus.data import load
from certus.networks.sprint import SMALLEST, MaxOverPixels, ScaledLinear, Sprint, Whitening, block, convolution, norm
from certus.report.statistics import mean_std
from certus.report.text_table import TextTable, spread_text
from certus.training.build import build_on
from certus.training.loop import fit
from certus.training.planning import complete_on

TASKS = ("cifar10-4000", "svhn-1000", "fashion-mnist-1000")
COLUMNS = ("task", "arm", "minutes", "seed", "validation_error", "steps", "processor_seconds", "megabytes", "settings")
VALIDATION = 5000


class MeanOverPixels(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mean((2, 3))


@dataclass(frozen=True)
class Shape:
    """What is varied of `sprint`; the defaults are the network as it is."""

    width: int = 128
    first: float = 0.25  # channels of the first block, as a share of the width
    convolutions: int = 2  # in each block
    kernel: int = 2  # of the whitening
    pool: type[nn.Module] = nn.MaxPool2d
    last: type[nn.Module] = MaxOverPixels

    def blocks(self, inputs: int, side: int) -> list[list[nn.Module]]:
        found = []
        for outputs in (int(self.first * self.width), self.width, self.width):
            pool = side // 2 >= SMALLEST
            layers = block(inputs, outputs, pool)
            if pool:
                layers[1] = self.pool(2)
            for _ in range(self.convolutions - 2):
                layers += [convolution(outputs, outputs), norm(outputs), nn.GELU()]
            found.append(layers)
            side, inputs = side // 2 if pool else side, outputs
        return found


class Shaped(Sprint):
    """`sprint` in another shape, for pictures of 28 or 32 pixels."""

    def __init__(self, shape: Shape, channels: int, classes: int, size: int, dropout: float) -> None:
        nn.Module.__init__(self)
        whitening = Whitening(channels, shape.kernel)
        first, second, last = shape.blocks(whitening.outputs, size - shape.kernel + 1)
        self.trunk = nn.Sequential(
            *(whitening, nn.GELU(), *first, *second, nn.Dropout(dropout), *last),
            *(shape.last(), nn.Dropout(dropout)),
        )
        self.head = ScaledLinear(shape.width, classes)


SHAPES = {
    "sprint": Shape(),
    "width 64": Shape(width=64),
    "width 96": Shape(width=96),
    "width 192": Shape(width=192),
    "first block w/2": Shape(first=0.5),
    "3 convolutions in a block": Shape(convolutions=3),
    "whitening 3×3": Shape(kernel=3),
    "means instead of maxima in the blocks": Shape(pool=nn.AvgPool2d),
    "mean over the pixels at the end": Shape(last=MeanOverPixels),
}


def trained(shape: Shape, given: Given) -> Result:
    data, _, labels = given["task"].rpartition("-")
    machine = {"data_dir": given["data_dir"], "device": "cpu", "threads": 1, "validation": VALIDATION}
    plain = {"data": data, "labels": int(labels), "method": "supervised", "seed": given["seed"], "network": "sprint"}
    images = load(data, given["data_dir"])
    config = resolve({**plain, **machine})
    channels, size = images.shape[0], images.shape[1]

    def make() -> nn.Module:
        return Shaped(shape, channels, len(images.classes), size, config.dropout)

    config = complete_on(images, config, minutes=TWO_CORES * given["minutes"], make=make)
    run = build_on(images, config, make)
    start = time.process_time()
    fit(run)
    seconds = time.process_time() - start
    chosen = {name: value for name, value in asdict(config).items() if name != "data_dir"}
    return {
        "validation_error": round(fmean(run.validation_errors()), 4),
        "steps": config.steps,
        "processor_seconds": round(seconds, 1),
        "settings": chosen,
    }


ARMS: dict[str, Callable[[Given], Result]] = {name: partial(trained, shape) for name, shape in SHAPES.items()}


def command(cell: Cell, data_dir: str) -> list[str]:
    given = {**vars(cell), "minutes": float(cell.minutes), "data_dir": data_dir}
    return [sys.executable, str(Path(__file__).resolve()), json.dumps(given)]


def report(rows: list[Row]) -> None:
    found: dict[tuple[str, str, str], list[float]] = {}
    for row in rows:
        found.setdefault((row["minutes"], row["arm"], row["task"]), []).append(float(row["validation_error"]))
    for minutes in sorted({m for m, _, _ in found}, key=float):
        lines = []
        for arm in SHAPES:
            errors = [found.get((minutes, arm, task), []) for task in TASKS]
            cells = [spread_text(*mean_std(e)) if e else "" for e in errors]
            if any(cells):
                lines.append((arm, *cells, ", ".join(str(n) for n in sorted({len(e) for e in errors if e}))))
        print(TextTable((f"{length(minutes)}, validation error (%)", *TASKS, "n"), tuple(lines)).markdown())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", default="", help="the folder of the data sets; empty: the usual one")
    parser.add_argument("--out", type=Path, default=Path("results/networks"))
    parser.add_argument("--minutes", type=names, default=names("1"))
    parser.add_argument("--tasks", type=names, default=list(TASKS), help="data sets with their number of labels")
    parser.add_argument("--arms", type=names, default=list(SHAPES), help=f"of: {', '.join(SHAPES)}")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--report", action="store_true", help="only print the tables")
    args = parser.parse_args()
    if args.report:
        report(read(args.out / "runs.csv"))
        return
    check_names(parser, args, list(SHAPES))
    wanted = [
        Cell(task, arm, minutes, seed)
        for seed, minutes, task, arm in product(range(args.seeds), args.minutes, args.tasks, args.arms)
    ]
    start = partial(command, data_dir=args.data_dir)
    Benchmark(args.out / "runs.csv", COLUMNS, start, args.workers).finish(wanted, Cell.of)


if __name__ == "__main__":
    if sys.argv[1:] and sys.argv[1].startswith("{"):
        answer(ARMS)
    else:
        main()
