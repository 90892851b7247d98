"""The one training loop. It is deterministic given the config, and safe to stop at any moment."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, nn

from certus import checkpoint
from certus.certainty import METRICS, predictive_ratio
from certus.config import Config
from certus.data import Dataset, load
from certus.data.batches import Batches
from certus.data.split import Split, split
from certus.errors import CertusError, UsageError
from certus.evaluate import draws, error, errors, probabilities
from certus.folder import Folder, put_json
from certus.method import Method, numbered, total
from certus.methods import recipe
from certus.models import network, suitable
from certus.models.modes import has_dropout
from certus.presets import epochs_for
from certus.randomness import seed_global, seed_of
from certus.schedules import Clock, cosine
from certus.step import Batch, Step
from certus.views import Views, weak


class Interrupted(CertusError):
    """The user stopped the run; everything is saved."""

    exit_code = 130


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


Listen = Callable[[Tick], None]


@dataclass(frozen=True, eq=False)
class Run:
    """Everything that a config means, built and ready for step 0."""

    config: Config
    data: Dataset
    split: Split
    batches: Batches
    views: Views
    method: Method
    optimiser: torch.optim.SGD
    images: Tensor  # (N, …) the training images, on the device, as stored
    labels: Tensor  # (N,) −1 where the run may not look

    def step(self, number: int) -> Step:
        """The number-th step, from 0: a pure function of config and number."""
        places = self.batches(number, self.method.unlabelled).to(self.images.device)
        batch = Batch(self.data.normalised(self.images[places]), self.labels[places], places)
        clock = Clock(number, self.config.steps, len(places))
        return Step(batch, clock, self.views, seed_of(self.config.seed, "steps"))

    def advance(self, number: int) -> dict[str, Tensor]:
        """One training step; its losses by term. A loss that is not finite stops here, before any weight moves."""
        step = self.step(number)
        losses = self.method.losses(step)
        for name, loss in losses.items():
            if not torch.isfinite(loss):
                raise CertusError(
                    f"The loss turned {loss.item()} in step {number + 1}, term '{name}'. The last good checkpoint is "
                    "kept; try a smaller --learning-rate or --weight."
                )
        for group in self.optimiser.param_groups:
            group["lr"] = self.config.learning_rate * cosine(number / self.config.steps)
        self.optimiser.zero_grad(set_to_none=True)
        total(losses).backward()
        self.optimiser.step()
        self.method.follow(step.clock)
        return {name: loss.detach() for name, loss in losses.items()}

    def validation_errors(self) -> list[float] | None:
        places = self.split.validation
        if not len(places):
            return None
        part = self.data.train
        return errors(self.method.answers, self.data, part.images[places], part.labels[places])


def complete(config: Config, epochs: float | None = None, minutes: float | None = None) -> Config:
    """The config with every `auto` decided: network, device, threads, and the number of steps.

    With `minutes`, a few steps are timed on a throw-away copy and the number of steps is fixed from that.
    """
    data = load(config.data)
    if config.device not in ("auto", "cpu", "cuda"):
        raise UsageError(f"--device must be auto, cpu or cuda, but is {config.device!r}.")
    if config.device == "cuda" and not torch.cuda.is_available():
        raise UsageError("--device cuda was asked for, but torch sees no GPU here: use --device cpu.")
    config = replace(
        config,
        network=suitable(data.shape) if config.network == "auto" else config.network,
        device=("cuda" if torch.cuda.is_available() else "cpu") if config.device == "auto" else config.device,
        threads=config.threads or len(os.sched_getaffinity(0)),
    )
    if config.steps:
        return config
    if minutes is not None:
        return replace(config, steps=steps_within(config, minutes))
    per_epoch = build(replace(config, steps=1)).batches.per_epoch
    wanted = epochs if epochs is not None else epochs_for(config.data)
    return replace(config, steps=max(1, round(wanted * per_epoch)))


def steps_within(config: Config, minutes: float) -> int:
    """How many steps fit, by timing a few of them (and one validation) on a copy that is thrown away."""
    with threads(config.threads):
        run = build(replace(config, steps=1_000_000))
        for number in range(3):
            run.advance(number)
        times = []
        for number in range(3, 13):
            start = time.perf_counter()
            run.advance(number)
            times.append(time.perf_counter() - start)
        start = time.perf_counter()
        run.validation_errors()
        validation = time.perf_counter() - start
    return max(1, int(60 * minutes / (fmean(times) + validation / run.batches.per_epoch)))


def build(config: Config) -> Run:
    data = load(config.data)
    parts = split(data, config.labels, config.seed, config.validation, config.balanced)
    if len(data.shape) == 1 and (config.translate or config.flip):
        raise UsageError(f"{config.data} holds vectors, which cannot be shifted or mirrored: use --noise alone.")

    def student(i: int) -> nn.Module:
        seed_global(config.seed, "initialisation", i)
        net = network(config.network, data.shape, len(data.classes), config.width, config.dropout)
        net.role = "student"
        return net.to(config.device, memory_format=torch.channels_last)

    known = recipe(config.method)
    with untouched_generator():
        method = known.build(student, known.options(**config.options))
    if "draws" in known.defaults() and not has_dropout(method.students[0]):
        raise UsageError(
            f"Method {config.method} measures certainty by dropout, but --dropout is 0: give a positive one."
        )
    return Run(
        config=config,
        data=data,
        split=parts,
        batches=Batches(
            parts.labelled,
            parts.unlabelled,
            (config.labelled_batch, config.unlabelled_batch),
            seed_of(config.seed, "batches"),
        ),
        views={"weak": weak(config.translate, config.flip, config.noise)},
        method=method,
        optimiser=torch.optim.SGD(
            [p for net in method.students for p in net.parameters()],
            lr=config.learning_rate,
            momentum=config.momentum,
            weight_decay=config.weight_decay,
            nesterov=config.momentum > 0,
            foreach=True,
        ),
        images=data.train.images.to(config.device),
        labels=parts.visible(data.train.labels).to(config.device),
    )


def train(
    config: Config, folder: Folder, listen: Listen = lambda tick: None, save_seconds: float = 30.0
) -> dict[str, Any]:
    """Train what the config says in this folder, from its last checkpoint if there is one; the result."""
    with threads(config.threads), untouched_generator(), stop_signal() as stopped:
        run = build(config)
        if not folder.exists():
            folder.create(config, run.split, run.data.fingerprint)
        progress = Progress.of(run, folder)
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
    sums: dict[str, float] | None = None

    @classmethod
    def of(cls, run: Run, folder: Folder) -> Progress:
        """From the folder's newest checkpoint, or from the beginning."""
        found = checkpoint.read(folder.checkpoints)
        progress = cls(run, folder)
        if found:
            tensors, meta = found
            state = {
                name.removeprefix("method."): t for name, t in tensors.items() if name.startswith("method.")
            }
            run.method.state.load_state_dict(state)
            checkpoint.restore_optimiser(run.optimiser, tensors)
            progress.step, progress.seconds, progress.sums = meta["step"], meta["seconds"], meta["sums"]
        folder.keep_metrics(progress.step)
        return progress

    def save(self) -> None:
        tensors = {f"method.{name}": t for name, t in self.run.method.state.state_dict().items()}
        tensors |= checkpoint.optimiser_tensors(self.run.optimiser)
        meta = {"seconds": self.seconds, "sums": self.sums}
        checkpoint.write(self.folder.checkpoints, self.step, tensors, meta)

    def advance(self, listen: Listen) -> None:
        start = time.perf_counter()
        run, per_epoch = self.run, self.run.batches.per_epoch
        losses = {name: loss.item() for name, loss in run.advance(self.step).items()}
        self.step += 1
        sums = self.sums = defaultdict(float, self.sums or {})
        for name, loss in losses.items():
            sums[name] += loss
        validation = None
        if self.step % per_epoch == 0 or self.step == run.config.steps:
            validation = self.close_epoch()
        spent = time.perf_counter() - start
        self.seconds += spent
        images = run.config.labelled_batch + run.config.unlabelled_batch * run.method.unlabelled
        listen(
            Tick(
                step=self.step,
                steps=run.config.steps,
                epoch=-(-self.step // per_epoch),
                epochs=-(-run.config.steps // per_epoch),
                losses=losses,
                images_per_second=images / spent,
                validation_error=fmean(validation) if validation else None,
            )
        )

    def close_epoch(self) -> list[float] | None:
        """Validate, and write the epoch's line."""
        run, per_epoch = self.run, self.run.batches.per_epoch
        validation = run.validation_errors()
        count = (self.step - 1) % per_epoch + 1
        clock = Clock(self.step - 1, run.config.steps)
        record = {
            "epoch": -(-self.step // per_epoch),
            "step": self.step,
            "e": clock.epoch,
            "losses": {name: value / count for name, value in (self.sums or {}).items()},
            "learning_rate": run.config.learning_rate * cosine(clock.step / clock.steps),
            "validation_error": fmean(validation) if validation else None,
            "validation_errors": validation,
            "seconds": round(self.seconds, 3),
        }
        self.folder.append_metrics(record)
        self.sums = None
        return validation


def conclude(run: Run, folder: Folder, seconds: float) -> dict[str, Any]:
    """Read the test set, once: each answering network's error and their mean, and what was said of each image."""
    test, nets = run.data.test, run.method.answers
    said = torch.stack([probabilities(net, run.data, test.images) for net in nets])  # (n, N, C)
    each = [error(p, test.labels) for p in said]
    tensors = {"probabilities": said, "labels": test.labels}
    if has_dropout(nets[0]):
        drawn = draws(nets[0], run.data, test.images, passes=10, seed=run.config.seed)
        tensors |= {name: metric(drawn) for name, metric in METRICS.items()}
        tensors["pr"] = predictive_ratio(drawn)
    folder.predictions.write_bytes(save(tensors))
    validation = run.validation_errors()
    result = {
        "method": run.config.method,
        "data": run.config.data,
        "labels": run.config.labels,
        "seed": run.config.seed,
        "steps": run.config.steps,
        "test_error": fmean(each),
        "test_errors": {numbered("teacher", i, len(each)): e for i, e in enumerate(each)},
        "validation_error": fmean(validation) if validation else None,
        "seconds": round(seconds, 3),
    }
    put_json(folder.result, result)
    return result


@contextmanager
def threads(n: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def untouched_generator() -> Iterator[None]:
    """Leave the caller's global random numbers as they were."""
    state = torch.default_generator.get_state()
    try:
        yield
    finally:
        torch.default_generator.set_state(state)


@contextmanager
def stop_signal() -> Iterator[threading.Event]:
    """Ctrl-C and SIGTERM ask to stop after the step under way; a second one stops at once."""
    stopped = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopped
        return

    def handle(number: int, frame: Any) -> None:
        if stopped.is_set():
            raise KeyboardInterrupt
        stopped.set()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


