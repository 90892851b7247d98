"""The one training loop. It is deterministic given the config, and safe to stop at any moment."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from safetensors.torch import save
from torch import Tensor

from certus import checkpoint
from certus.allocation import freed_memory_kept
from certus.config import Config
from certus.cost import step_bytes
from certus.errors import CertusError
from certus.evaluate import answers
from certus.folder import Folder, put, put_json
from certus.models.roles import role
from certus.observe import Observer
from certus.randomness import untouched_generator
from certus.run import Run, build, threads
from certus.schedules import Clock
from certus.scores import error
from certus.stopping import Interrupted, stop_signal


@dataclass(frozen=True)
class Tick:
    """What a listener hears after a step."""

    step: int
    steps: int
    epoch: int
    epochs: int
    losses: dict[str, float]
    images_per_second: float
    validation_error: float | None


UNREAD = 10  # steps of a GPU between two readings of the losses
Listen = Callable[[Tick], None]


def ignore(tick: Tick) -> None:
    """A listener that does not."""


def train(
    config: Config,
    folder: Folder,
    listen: Listen = ignore,
    save_seconds: float = 30.0,
    signals: Sequence[signal.Signals] = (signal.SIGINT, signal.SIGTERM),
    observe: bool = True,
) -> dict[str, Any]:
    """Train what the config says in this folder, from its last checkpoint if there is one; the result.

    Without `observe` the run is the same to the bit, and metrics.jsonl tells only losses and validation errors.
    """
    with freed_memory_kept(), threads(config.threads), untouched_generator(), stop_signal(signals) as stopped:
        run = build(config)
        if folder.exists():
            folder.check_data(run)
        else:
            folder.create(run)
        progress = Progress.of(run, folder, run.observer() if observe else None)
        saved = time.monotonic()
        while progress.step < config.steps:
            progress.advance(listen)
            if stopped.is_set():
                progress.save()
                raise Interrupted(
                    f"Stopped after step {progress.step} of {config.steps}; everything is saved. "
                    f"Go on with: certus train --resume {folder.path}"
                )
            if time.monotonic() - saved >= save_seconds:
                progress.save()
                saved = time.monotonic()
        progress.save()
        return conclude(run, folder, progress.seconds)


@dataclass
class Progress:
    """A run under way: how far it is, and what the current epoch has summed up so far."""

    run: Run
    folder: Folder
    step: int = 0
    seconds: float = 0.0
    sums: dict[str, Tensor | float] | None = None
    observer: Observer | None = None
    losses: dict[str, float] = field(default_factory=dict)  # the newest that were read

    @classmethod
    def of(cls, run: Run, folder: Folder, observer: Observer | None = None) -> Progress:
        """From the folder's newest checkpoint, or from the beginning."""
        found = checkpoint.read(folder.checkpoints)
        progress = cls(run, folder, observer=observer)
        if found:
            progress.step = restore(run, found)
            progress.seconds, progress.sums = found[1]["seconds"], found[1]["sums"]
            if observer and (seen := found[1].get("observed")):
                observer.restore(seen)
        folder.keep_metrics(progress.step)
        return progress

    def phase(self, name: str) -> AbstractContextManager[None]:
        return self.observer.watch.phase(name) if self.observer else nullcontext()

    def save(self) -> None:
        with self.phase("saving"):
            self.write_checkpoint()

    def write_checkpoint(self) -> None:
        tensors = {f"method.{name}": t for name, t in self.run.method.state.state_dict().items()}
        tensors |= checkpoint.optimiser_tensors(self.run.optimiser)
        sums = {name: float(value) for name, value in (self.sums or {}).items()}
        meta: dict[str, Any] = {"seconds": self.seconds, "sums": sums}
        if self.observer:
            meta["observed"] = self.observer.state()
        checkpoint.write(self.folder.checkpoints, self.step, tensors, meta)

    def advance(self, listen: Listen) -> None:
        start = time.perf_counter()
        run, per_epoch = self.run, self.run.batches.per_epoch
        made = run.advance(self.step, self.observer)
        self.step += 1
        closing = self.step % per_epoch == 0 or self.step == run.config.steps
        waits = run.images.is_cuda and not closing and self.step % UNREAD  # a GPU is not asked at every step
        losses = self.losses if waits else {name: float(loss) for name, loss in made.items()}
        if not waits:
            run.check(losses, self.step - 1)
        self.losses = losses
        sums = self.sums = self.sums or {}
        for name, loss in (made if run.images.is_cuda else losses).items():
            sums[name] = sums.get(name, 0.0) + loss
        validation = self.close_epoch() if closing else []
        spent = time.perf_counter() - start
        self.seconds += spent
        listen(
            Tick(
                step=self.step,
                steps=run.config.steps,
                epoch=-(-self.step // per_epoch),
                epochs=-(-run.config.steps // per_epoch),
                losses=losses,
                images_per_second=run.batches.size(run.method.sees) / spent,
                validation_error=fmean(validation) if validation else None,
            )
        )

    def close_epoch(self) -> list[float]:
        """Validate, and write the epoch's line."""
        run, per_epoch = self.run, self.run.batches.per_epoch
        with self.phase("validation"):
            validation = run.validation_errors()
        count = (self.step - 1) % per_epoch + 1
        clock = Clock(self.step - 1, run.config.steps, run.batches.size(run.method.sees), per_epoch)
        record = {
            "epoch": -(-self.step // per_epoch),
            "step": self.step,
            "e": clock.epoch,
            "losses": {name: float(value) / count for name, value in (self.sums or {}).items()},
            "learning_rate": run.rate(clock.step),
            "validation_error": fmean(validation) if validation else None,
            "validation_errors": validation,
            "seconds": round(self.seconds, 3),
        }
        if self.observer:
            record |= self.observer.close(clock)
        self.folder.append_metrics(record)
        self.sums = None
        return validation


def restore(run: Run, found: checkpoint.Checkpoint) -> int:
    """Put a checkpoint's tensors into a run; the number of steps that it has done."""
    tensors, meta = found
    try:
        run.method.state.load_state_dict(checkpoint.part(tensors, "method."))
    except RuntimeError:
        raise CertusError(
            "The checkpoint does not fit the run's config.toml: its tensors have other names or shapes."
        ) from None
    checkpoint.restore_optimiser(run.optimiser, tensors)
    return int(meta["step"])


def conclude(run: Run, folder: Folder, seconds: float) -> dict[str, Any]:
    """Read the test set, once: each answering network's error and their mean, and what was said of each image."""
    test, nets, each = run.data.test, run.method.answers, []
    if nets and len(test):
        said = answers(nets, run.data.normalised, test, run.config.seed)
        each = [error(p, test.labels) for p in said["probabilities"]]
        put(folder.predictions, save(said))
    validation = run.validation_errors()
    result = {
        "method": run.config.method,
        "data": run.config.data,
        "labels": run.config.labels,
        "seed": run.config.seed,
        "steps": run.config.steps,
        "test_error": fmean(each) if each else None,
        "test_errors": {role(net): e for net, e in zip(nets, each, strict=False)},
        "validation_error": fmean(validation) if validation else None,
        "seconds": round(seconds, 3),
        "bytes": step_bytes(run, run.config.steps - 1),
    }
    put_json(folder.result, result)
    return result
