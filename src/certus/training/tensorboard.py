"""The curves of a run for TensorBoard, made from its metrics.jsonl and nothing else.

A run that goes on has its curves written anew: metrics.jsonl has every epoch once, and so have they.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from certus.errors import UsageError
from certus.training.artefacts import EPOCH, opened
from certus.training.loop import Listen, Tick, ignore
from certus.training.observer import QUANTILES
from certus.training.run_folder import RunFolder

SUFFIX = ".certus"  # of our files: no others are removed


def the_writer() -> Any:
    """The class that writes event files, or a sentence."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UsageError(
            "`tensorboard` needs the package tensorboard: run `pip install 'certus-ssl[tensorboard]'`, or leave it out."
        ) from None
    return SummaryWriter


@contextmanager
def board(folder: RunFolder, root: Path | None) -> Iterator[Listen]:
    """A listener that writes the epochs of a run into root/NAME while it trains; without `root`, it does nothing."""
    if root is None:
        yield ignore
        return
    made = Board(folder, root / folder.path.resolve().name)
    try:
        yield made.listen
    finally:
        made.close()


@dataclass
class Board:
    folder: RunFolder
    path: Path
    read: int = 0  # bytes of metrics.jsonl
    writer: Any = field(default=None)

    def listen(self, tick: Tick) -> None:
        """Called after the loop has dropped the lines that it writes again."""
        if tick.epoch and self.folder.metrics.exists() and self.folder.metrics.stat().st_size > self.read:
            self.update()

    def update(self) -> None:
        """Write the epochs that are new."""
        if self.writer is None:
            if self.path.exists():
                for old in self.path.glob(f"events.out.tfevents.*{SUFFIX}"):
                    old.unlink()
            # `purge_step` tells a TensorBoard that is open to forget what it has read
            self.writer = the_writer()(str(self.path), purge_step=0, filename_suffix=SUFFIX)
        with self.folder.metrics.open("rb") as file:
            file.seek(self.read)
            *lines, _ = file.read().split(b"\n")
        for line in lines:
            self.read += len(line) + 1
            record = opened(line, EPOCH)
            for name, value in scalars(record).items():
                self.writer.add_scalar(name, value, record["step"])
            for name, histogram in histograms(record).items():
                self.writer.add_histogram_raw(name, **histogram, global_step=record["step"])
        self.writer.flush()

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()


def scalars(record: Mapping[str, Any]) -> dict[str, float]:
    """Of an epoch: losses, rates, validation errors, schedules, and what became of the targets."""
    found: dict[str, float | None] = {f"loss/{term}": value for term, value in record["losses"].items()}
    found["rate/learning rate"] = record.get("learning_rate")
    found["rate/images per second"] = record.get("images_per_second")
    found["validation error/mean"] = record.get("validation_error")
    errors = record.get("validation_errors") or []
    if len(errors) > 1:
        found |= {f"validation error/network {i}": error for i, error in enumerate(errors, 1)}
    for term, scheduled in record.get("now", {}).items():
        found |= {f"schedule/{term} {name}": value for name, value in scheduled.items()}
    for term, targets in record.get("targets", {}).items():
        found |= {f"kept targets/{term} {stage}": share for stage, share in targets["kept"].items()}
        found |= {f"right targets/{term} {which}": share for which, share in targets.get("accuracy", {}).items()}
        for part, spread in targets.get("uncertainty", {}).items():
            if spread:
                found[f"uncertainty/{term} {part}"] = spread["mean"]
    return {name: value for name, value in found.items() if value is not None}


def histograms(record: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The middle nine tenths of the uncertainties of an epoch, from their quantiles: of 100 targets, so many between
    one quantile and the next."""
    found = {}
    for term, targets in record.get("targets", {}).items():
        for part, spread in targets.get("uncertainty", {}).items():
            edges = (spread or {}).get("quantiles")
            if not edges or len(edges) != len(QUANTILES) or not edges[0] < edges[-1]:
                continue
            shares = [100 * (high - low) for low, high in pairwise(QUANTILES)]
            middles = [(low + high) / 2 for low, high in pairwise(edges)]
            found[f"uncertainty spread/{term} {part}"] = {
                "min": edges[0],
                "max": edges[-1],
                "num": sum(shares),
                "sum": sum(n * x for n, x in zip(shares, middles, strict=True)),
                "sum_squares": sum(n * x * x for n, x in zip(shares, middles, strict=True)),
                "bucket_limits": edges,  # the first bucket ends at the lowest quantile, and is empty
                "bucket_counts": [0.0, *shares],
            }
    return found
