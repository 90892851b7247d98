"""The one training loop: for the command line, Python, comparisons and the paper's experiments alike.

It is deterministic given the config, and safe to stop at any moment.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean
from typing import Any

from torch import Tensor

from certus import optimisers
from certus.certainty.scores import error, mean_class_errors
from certus.errors import CertusError, Interrupted
from certus.networks.roles import role
from certus.randomness import untouched_generator
from certus.training import checkpoint
from certus.training.artefacts import sealed, tensor_bytes
from certus.training.card import write_card
from certus.training.evaluation import answers
from certus.training.identity import check_identity, identity
from certus.training.lock import Lock, locked
from certus.training.memory import freed_memory_kept, step_bytes
from certus.training.observer import Observer
from certus.training.run import Run, check_finite, unwatched
from certus.training.run_folder import RunFolder
from certus.training.stopping import stop_signal
from certus.training.threads import threads
from certus.writing import put, put_json


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
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
Listen = Callable[[Tick], None]


def ignore(tick: Tick) -> None:
    """A listener that does nothing."""


def both(first: Listen, second: Listen) -> Listen:
    """A listener that tells two."""

    def listen(tick: Tick) -> None:
        first(tick)
        second(tick)

    return listen


def train(
    run: Run,
    folder: RunFolder,
    listen: Listen = ignore,
    save_seconds: float = 30.0,
    signals: Sequence[signal.Signals] = STOP_SIGNALS,
    observe: bool = True,
) -> dict[str, Any]:
    """Train a run in its folder, from the newest checkpoint if there is one; the result.

    Without `observe` the weights are the same to the bit, and metrics.jsonl has only losses and validation errors. Of
    several processes, rank 0 alone touches the folder.
    """
    team = run.team
    with (
        locked(folder.path) if team.leads else nullcontext() as lock,
        untouched_generator(),
        threads(team.threads(run.config.threads)),
        stop_signal(signals, team.size == 1) as stopped,
        team.guarded(),
    ):
        team.told(lambda: opened(run, folder))
        progress = Progress.of(run, folder, observe)
        progress.lock = lock
        to_the_end(progress, listen, stopped, save_seconds)
        return conclude(run, folder, progress.seconds)


def opened(run: Run, folder: RunFolder) -> str:
    """The folder, with what the run starts from in it."""
    if folder.exists():
        folder.check_config(run.config)
    else:
        folder.create(run)
    return str(folder.path)


def fit(run: Run, listen: Listen = ignore) -> None:
    """Train a run in memory: nothing is written, nothing is evaluated."""
    with untouched_generator(), threads(run.config.threads):
        to_the_end(Progress(run), listen, threading.Event())


def to_the_end(
    progress: Progress, listen: Listen, stopped: threading.Event, save_seconds: float = float("inf")
) -> None:
    """The loop: from where the run is to its last step, or to where it is stopped."""
    steps, team = progress.run.config.steps, progress.run.team
    with freed_memory_kept():
        saved = time.monotonic()
        while progress.step < steps:
            listen(progress.advance())
            stop, due = team.any(stopped.is_set(), team.leads and time.monotonic() - saved >= save_seconds)
            if stop:
                progress.save()
                raise Interrupted(f"Stopped after step {progress.step} of {steps}; everything is saved.")
            if due:
                progress.save()
                saved = time.monotonic()
        progress.save()


@dataclass
class Progress:
    """A run under way: how far it is, and the sums of the current epoch. Without a folder nothing is written."""

    run: Run
    folder: RunFolder | None = None
    observer: Observer | None = None
    lock: Lock | None = None
    step: int = 0
    seconds: float = 0.0
    sums: dict[str, Tensor | float] = field(default_factory=dict)
    losses: dict[str, float] = field(default_factory=dict)  # the newest that were read

    @classmethod
    def of(cls, run: Run, folder: RunFolder, observe: bool, lock: Lock | None = None) -> Progress:
        """From the folder's newest checkpoint, or from the beginning."""
        progress = cls(run, folder, run_observer(run) if observe else None, lock)
        team = run.team
        found = checkpoint.told(team, folder.checkpoints)
        if found:
            check_identity(found[1], run, folder.path)
        if team.leads and folder.exists():
            check_identity(folder.load_split(), run, folder.path)
            folder.check_data(run)
        if found:
            progress.step = restore(run, found)
            progress.seconds, progress.sums = found[1]["seconds"], found[1]["sums"]
            if progress.observer and (observed := found[1].get("observed")):
                progress.observer.restore(observed)
        else:
            team.same(run.method.state.state_dict())
        if team.leads:
            folder.keep_metrics(progress.step, progress.step // run.batches.per_epoch)
        return progress

    @cached_property
    def identity(self) -> dict[str, Any]:
        return identity(self.run)

    def phase(self, name: str) -> AbstractContextManager[None]:
        return self.observer.watch.phase(name) if self.observer else unwatched(name)

    def save(self) -> None:
        if self.folder is None:
            return
        self.check_folder()
        with self.phase("saving"):
            tensors = {f"method.{name}": t for name, t in self.run.method.state.state_dict().items()}
            state = optimisers.state_tensors(self.run.optimiser)
            tensors |= {f"optimiser.{name}": t for name, t in state.items()}
            sums = {name: float(value) for name, value in self.sums.items()}
            meta: dict[str, Any] = {"seconds": self.seconds, "sums": sums, "identity": self.identity}
            if self.observer:
                meta["observed"] = self.observer.state()
            self.run.team.check_equal(tensors, f"after step {self.step}")
            if self.run.team.leads:
                checkpoint.write(self.folder.checkpoints, self.step, tensors, meta)

    def check_folder(self) -> None:
        if self.lock:
            self.lock.check()

    def advance(self) -> Tick:
        """One step, and at the end of an epoch its validation and its line."""
        start = time.perf_counter()
        run, per_epoch = self.run, self.run.batches.per_epoch
        made = run.advance(self.step, self.observer)
        self.step += 1
        closing = self.step % per_epoch == 0 or self.step == run.config.steps
        waits = run.images.is_cuda and not closing and self.step % UNREAD  # a GPU is not asked at every step
        if not waits:
            self.losses = {name: float(loss) for name, loss in made.items()}
            check_finite(self.losses, self.step - 1)
        for name, loss in (made if run.images.is_cuda else self.losses).items():
            self.sums[name] = self.sums.get(name, 0.0) + loss
        validation = self.close_epoch() if closing and self.folder else []
        spent = time.perf_counter() - start
        self.seconds += spent
        return Tick(
            step=self.step,
            steps=run.config.steps,
            epoch=-(-self.step // per_epoch),
            epochs=-(-run.config.steps // per_epoch),
            losses=self.losses,
            images_per_second=run.images_per_step / spent,
            validation_error=fmean(validation) if validation else None,
        )

    def close_epoch(self) -> list[float]:
        """Validate, and write the epoch's line."""
        assert self.folder is not None
        self.check_folder()
        run, per_epoch = self.run, self.run.batches.per_epoch
        with self.phase("validation"):
            validation = run.validation_errors()
        count = (self.step - 1) % per_epoch + 1
        clock = run.clock(self.step - 1)
        record = {
            "epoch": -(-self.step // per_epoch),
            "step": self.step,
            "e": clock.epoch,
            "losses": {name: float(value) / count for name, value in self.sums.items()},
            "learning_rate": run.rate(clock.step),
            "validation_error": fmean(validation) if validation else None,
            "validation_errors": validation,
            "seconds": round(self.seconds, 3),
        }
        if self.observer:
            record |= self.observer.close(clock)
        if run.team.leads:
            self.folder.append_metrics(record)
        self.sums = {}
        return validation


def run_observer(run: Run) -> Observer:
    """It alone is given the hidden labels."""
    return Observer(run.method, run.data.train.labels.to(run.images.device))


def restore(run: Run, found: checkpoint.Checkpoint) -> int:
    """Put a checkpoint's tensors into a run; the number of steps that it has done."""
    tensors, meta = found
    try:
        run.method.state.load_state_dict(checkpoint.part(tensors, "method."))
    except RuntimeError:
        raise CertusError(
            "The checkpoint does not fit the run's config.toml: its tensors have other names or shapes."
        ) from None
    optimisers.restore(run.optimiser, checkpoint.part(tensors, "optimiser."))
    return int(meta["step"])


def conclude(run: Run, folder: RunFolder, seconds: float) -> dict[str, Any]:
    """Read the test set, once: each answering network's error and their mean, and its answer to each image."""
    test, nets, each = run.inputs.test, run.method.answers, []
    by_class: dict[str, float] = {}
    predictions: dict[str, Tensor] = {}
    if nets and len(test):
        predictions = answers(run.method, run.inputs.normalised, test, run.config.seed, run.config.looks, run.team)
        each = [error(p, test.labels) for p in predictions["probabilities"]]
        by_class = mean_class_errors(list(predictions["probabilities"]), test.labels, run.data.classes)
    validation_answers = run.validation_answers()
    validation = [error(p, run.validation.labels) for p in validation_answers]
    if validation and not by_class:
        by_class = mean_class_errors(validation_answers, run.validation.labels, run.data.classes)
    result = {
        "method": run.config.method,
        "data": run.config.data,
        "labels": run.config.labels,
        "seed": run.config.seed,
        "steps": run.config.steps,
        "test_error": fmean(each) if each else None,
        "test_errors": {role(net): e for net, e in zip(nets, each, strict=False)},
        "validation_error": fmean(validation) if validation else None,
        "class_errors": by_class,
        "mirror": run.config.mirror,
        "nudge": run.config.nudge,
        "seconds": round(seconds, 3),
        "bytes": step_bytes(run, run.config.steps - 1),
    }
    run.team.told(lambda: concluded(run, folder, result, predictions))
    return result


def concluded(run: Run, folder: RunFolder, result: dict[str, Any], predictions: Mapping[str, Tensor]) -> str:
    """Write the last files of a run."""
    if predictions:
        put(folder.predictions, tensor_bytes(predictions))
    write_card(folder, result, len(run.validation))
    put_json(folder.result, sealed(result))  # the last file: with it the run is finished
    return str(folder.result)
