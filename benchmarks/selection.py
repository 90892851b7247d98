"""How much could the choice of targets gain, and how much of that does certainty gain?

    python benchmarks/selection.py --data-dir DATA
    python benchmarks/selection.py --report

Mean Teacher on strong views, with the engine's settings. The arms differ in which targets the student learns from. In
every batch the arms `right`, `confidence`, `witness`, `random` and `reversed` keep the same number: as many targets as
are right there. `right` keeps exactly those. It looks at hidden labels, which no method of certus can do, so it is not
a rival but the ceiling of every choice. `random` is the floor. The share of the way from floor to ceiling is what
certainty is worth.

The first command trains. It can be stopped at any time, and the same command goes on with what is missing: every
finished cell (task, arm, images, seed) is a row of OUT/runs.csv. The second one only reads that file. All arms of a
task see the same number of unlabelled images. The test set is never read: errors are those of training images that are
kept apart (5,000; digits: 200).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from statistics import fmean

import torch
from resumable import Benchmark, Given, Result, Row, answer, names, read
from torch import Tensor

from certus.certainty.metrics import rank, unconfidence, witnessed_entropy
from certus.config import resolve
from certus.core.step import Step
from certus.core.target import Target
from certus.core.terms import Consistency
from certus.data import load
from certus.report.statistics import mean_std
from certus.report.text_table import TextTable, spread_text
from certus.training.build import build_on
from certus.training.loop import fit
from certus.training.planning import complete_seeing
from certus.training.run import Run

TASKS = ("digits-20", "fashion-mnist-100", "svhn-100", "svhn-250", "cifar10-1000")
COLUMNS = (
    *("task", "arm", "images", "seed", "validation_error", "right_first", "right_last", "kept_right", "steps"),
    *("processor_seconds", "megabytes", "settings"),
)
VALIDATION = {"digits": 200}
IMAGES = {"digits": 10_000}  # unlabelled images that are seen, counted with repetition
PARTS = 5  # of the steps after the warm-up: the first and the last are reported


@dataclass(frozen=True)
class Cell:
    task: str  # a data set and its number of labels
    arm: str
    images: str  # unlabelled images that are seen
    seed: int
    minutes = ""  # not a length that `resumable` can guess the time by

    @classmethod
    def of(cls, row: Row) -> Cell:
        return cls(row["task"], row["arm"], row["images"], int(row["seed"]))

    def __str__(self) -> str:
        return f"{self.task}, {self.arm}, {int(self.images):,} images, seed {self.seed}"


# --- which targets are kept


Doubt = Callable[[Target, Step], Tensor]  # (B,) larger = dropped first


def by_confidence(target: Target, step: Step) -> Tensor:  # noqa: ARG001 (one signature)
    return unconfidence(target.logits.softmax(1))


def at_random(target: Target, step: Step) -> Tensor:
    return torch.rand(len(target.weight), generator=step.generator("ranks"))


def reversed_confidence(target: Target, step: Step) -> Tensor:
    return -by_confidence(target, step)


def as_many(doubt: Tensor, unlabelled: Tensor, count: int) -> Tensor:
    """(B,) 1 for labelled images and for the `count` unlabelled ones of least doubt, 0 for others."""
    last = doubt.masked_fill(~unlabelled, float("inf"))
    return (~unlabelled | (rank(last) <= count)).float()


@dataclass(frozen=True, eq=False)
class Choose:
    """Keep as many unlabelled targets as are right, by an order. It is given the hidden labels to count them."""

    labels: Tensor
    doubt: Doubt | None = None  # None: exactly the right ones
    all: bool = False  # keep every target
    seen: list[tuple[float, float]] = field(default_factory=list)  # by step: right of all, right of those kept

    def __call__(self, target: Target, step: Step) -> Target:
        unlabelled = step.batch.labels < 0
        right = (target.logits.argmax(1) == self.labels[step.batch.index]) & unlabelled
        if self.all:
            mask = torch.ones_like(target.weight)
        elif self.doubt is None:
            mask = (right | ~unlabelled).float()
        else:
            mask = as_many(self.doubt(target, step), unlabelled, int(right.sum()))
        kept = mask.bool() & unlabelled
        self.seen.append((share(right, unlabelled), share(right, kept)))
        return target.kept(mask)


def share(right: Tensor, of: Tensor) -> float:
    """Percent."""
    return 100.0 * float(right[of].float().mean()) if of.any() else 0.0


def witness_of(run: Run) -> Doubt:
    (witness,) = run.method.witnesses

    def doubt(target: Target, step: Step) -> Tensor:
        return witnessed_entropy(target.logits.softmax(1), step.answer(witness, "b").softmax(1))

    return doubt


DOUBTS: dict[str, Callable[[Run], Doubt]] = {
    "confidence": lambda run: by_confidence,  # noqa: ARG005
    "witness": witness_of,
    "random": lambda run: at_random,  # noqa: ARG005
    "reversed": lambda run: reversed_confidence,  # noqa: ARG005
}
ARMS = ("every target", "right", *DOUBTS)


# --- a cell


def choosing(run: Run, arm: str) -> tuple[Run, Choose]:
    """The run whose consistency term chooses its targets like this."""
    term = run.method.terms["consistency"]
    assert isinstance(term, Consistency)
    doubt = DOUBTS[arm](run) if arm in DOUBTS else None
    choose = Choose(run.data.train.labels, doubt, all=arm == "every target")
    terms = {**run.method.terms, "consistency": replace(term, refine=(choose, *term.refine))}
    return replace(run, method=replace(run.method, terms=terms)), choose


def trained(given: Given) -> Result:
    data, _, labels = given["task"].rpartition("-")
    machine = {"data_dir": given["data_dir"], "device": "cpu", "threads": 1, "validation": VALIDATION.get(data, 5000)}
    plain = {"data": data, "labels": int(labels), "method": "mean-teacher", "seed": given["seed"]}
    batch = {} if data == "digits" else {"labelled_batch": 64, "unlabelled_batch": 128}  # of short runs
    config = complete_seeing(resolve({**plain, **machine, **batch}), int(given["images"]))
    run, choose = choosing(build_on(load(data, given["data_dir"]), config), given["arm"])
    start = time.process_time()
    fit(run)
    seconds = time.process_time() - start
    part = max(1, len(choose.seen) // PARTS)
    return {
        "validation_error": round(fmean(run.validation_errors()), 4),
        "right_first": round(fmean(right for right, _ in choose.seen[:part]), 2),
        "right_last": round(fmean(right for right, _ in choose.seen[-part:]), 2),
        "kept_right": round(fmean(kept for _, kept in choose.seen), 2),
        "steps": config.steps,
        "processor_seconds": round(seconds, 1),
        "settings": {name: value for name, value in asdict(config).items() if name != "data_dir"},
    }


# --- the table


def errors(rows: Iterable[Row]) -> dict[str, dict[str, dict[int, float]]]:
    """By task and arm, then by seed."""
    found: dict[str, dict[str, dict[int, float]]] = {}
    for row in rows:
        found.setdefault(row["task"], {}).setdefault(row["arm"], {})[int(row["seed"])] = float(row["validation_error"])
    return found


def captured(by_arm: dict[str, dict[int, float]], arm: str) -> float | None:
    """The percentage of the way from random targets to the right ones, by means over the seeds that all three have."""
    three = [by_arm.get(name, {}) for name in ("random", "right", arm)]
    seeds = sorted(set.intersection(*(set(each) for each in three)))
    if not seeds:
        return None
    floor, ceiling, mine = (fmean(each[seed] for seed in seeds) for each in three)
    return 100 * (floor - mine) / (floor - ceiling) if floor != ceiling else None


def table(rows: Sequence[Row]) -> TextTable:
    found = errors(rows)
    tasks = [task for task in dict.fromkeys((*TASKS, *found)) if task in found]
    lines = []
    for arm in ARMS:
        values = [list(found[task].get(arm, {}).values()) for task in tasks]
        if any(values):
            lines.append((arm, *(spread_text(*mean_std(v)) if v else "" for v in values)))
    for arm in ("confidence", "witness"):
        shares = [captured(found[task], arm) for task in tasks]
        if any(s is not None for s in shares):
            lines.append(
                (f"{arm}: share of the way", *("" if s is None else f"{s:.0f} %".replace("-", "−") for s in shares))
            )
    lines.append(("right of all targets, first and last fifth", *(first_and_last(rows, task) for task in tasks)))
    counts = [sorted({len(v) for v in found[task].values()}) for task in tasks]
    lines.append(("n", *(" to ".join(str(n) for n in dict.fromkeys((c[0], c[-1]))) for c in counts)))
    return TextTable(("validation error (%)", *tasks), tuple(lines))


def first_and_last(rows: Sequence[Row], task: str) -> str:
    """Percent, of the runs that learn from every target."""
    plain = [r for r in rows if (r["task"], r["arm"]) == (task, "every target")]
    return ", ".join(f"{fmean(float(r[c]) for r in plain):.0f}" for c in ("right_first", "right_last")) if plain else ""


def command(cell: Cell, data_dir: str) -> list[str]:
    return [sys.executable, str(Path(__file__).resolve()), json.dumps({**asdict(cell), "data_dir": data_dir})]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", default="", help="the folder of the data sets; empty: the usual one")
    parser.add_argument("--out", type=Path, default=Path("results/selection"))
    parser.add_argument("--images", type=int, default=20_000, help="unlabelled images that are seen (digits: 10,000)")
    parser.add_argument("--tasks", type=names, default=list(TASKS), help="data sets with their number of labels")
    parser.add_argument("--arms", type=names, default=list(ARMS), help=f"of: {', '.join(ARMS)}")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--report", action="store_true", help="only print the table")
    args = parser.parse_args()
    if args.report:
        print(table(read(args.out / "runs.csv")).markdown(), end="")
        return
    if unknown := [name for name in args.arms if name not in ARMS]:
        parser.error(f"There is no arm {unknown[0]!r}: choose from {', '.join(ARMS)}.")
    wanted = [
        Cell(task, arm, str(IMAGES.get(task.rpartition("-")[0], args.images)), seed)
        for seed, task, arm in product(range(args.seeds), args.tasks, args.arms)
    ]
    start = partial(command, data_dir=args.data_dir)
    Benchmark(args.out / "runs.csv", COLUMNS, start, args.workers).finish(wanted, Cell.of)


if __name__ == "__main__":
    if sys.argv[1:] and sys.argv[1].startswith("{"):
        answer(dict.fromkeys(ARMS, trained))
    else:
        main()
