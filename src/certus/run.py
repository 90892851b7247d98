"""What a config means: data, split, views, method and optimiser, built and ready for any step."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

import torch
from torch import Tensor, nn

from certus.config import Config
from certus.data import Dataset, Part, is_folder, load
from certus.data.batches import Batches
from certus.data.split import Split, corrupt, split
from certus.errors import CertusError, UsageError
from certus.evaluate import errors
from certus.material import Material, Networks
from certus.method import Method, total
from certus.methods import recipe
from certus.models import network, suitable, suitable_width
from certus.observe import Observer
from certus.presets import epochs_for
from certus.pretraining import plant, trunk
from certus.randomness import seed_global, seed_of, untouched_generator
from certus.schedules import Clock
from certus.step import Batch, Step
from certus.views import Augmentation, Chain, Noise, Views, weak
from certus.views.randaugment import RandAugment

Make = Callable[[], nn.Module]


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
    validation: Part  # never trained on

    def step(self, number: int) -> Step:
        """The number-th step, from 0: a pure function of config and number."""
        places = self.batches(number, self.method.sees).to(self.images.device, non_blocking=True)
        batch = Batch(self.data.normalised(self.images[places]), self.labels[places], places)
        clock = Clock(number, self.config.steps, len(places), self.batches.per_epoch)
        return Step(batch, clock, self.views, seed_of(self.config.seed, "steps"))

    def rate(self, number: int) -> float:
        """The learning rate of the number-th step."""
        return self.config.learning_rate * self.method.pace(number / self.config.steps)

    def advance(self, number: int, observer: Observer | None = None) -> dict[str, Tensor]:
        """One training step; its losses by term. A loss that is not finite moves no weight, and stops the run.

        On a GPU nobody waits for the losses: there `check` is the caller's, when it reads them.
        """

        def phase(name: str) -> AbstractContextManager[None]:
            return observer.watch.phase(name) if observer else nullcontext()

        with phase("batch"):
            step = self.step(number)
        if observer:
            step = observer.timed(step)
        with phase("losses"), torch.autocast("cuda", torch.bfloat16, enabled=self.images.is_cuda):
            losses = self.method.losses(step)
        if not self.images.is_cuda:
            self.check({name: loss.detach() for name, loss in losses.items()}, number)
        for group in self.optimiser.param_groups:
            group["lr"] = self.rate(number)
        with phase("backward"):
            self.optimiser.zero_grad(set_to_none=True)
            loss = total(losses)
            loss.backward()
            if self.images.is_cuda:
                self.spare(torch.isfinite(loss))
        with phase("optimiser"):
            self.optimiser.step()
        with phase("followers"):
            self.method.follow(step)
        if observer:
            with phase("observing"):
                observer.see(step)
        return {name: loss.detach() for name, loss in losses.items()}

    def spare(self, finite: Tensor) -> None:
        """No gradient from a loss that is not finite, decided where the tensors are."""
        for group in self.optimiser.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.grad = torch.where(finite, p.grad, 0.0)

    def check(self, losses: Mapping[str, Tensor | float], number: int) -> None:
        for name, loss in losses.items():
            if not math.isfinite(loss):
                raise CertusError(
                    f"The loss turned {float(loss)} in step {number + 1}, term '{name}'. The last good checkpoint is "
                    "kept; try a smaller --learning-rate or --weight."
                )

    def observer(self) -> Observer:
        """Who watches the training. It alone is given the hidden labels."""
        return Observer(self.method, self.data.train.labels.to(self.images.device))

    def validation_errors(self) -> list[float]:
        """Of each answering network; nothing where there is none, or nothing to ask it."""
        part = self.validation
        return errors(self.method.answers, self.data.normalised, part.images, part.labels) if len(part) else []


def complete(config: Config, epochs: float | None = None, minutes: float | None = None) -> Config:
    """The config with every `auto` decided: network, device, threads, paths, and the number of steps.

    With `minutes`, a few steps are timed on a throw-away copy and the number of steps is fixed from that.
    """
    config = complete_for(load(config.data, config.data_dir, config.size), config)
    if config.steps:
        return config
    if minutes is not None:
        return replace(config, steps=steps_within(config, minutes))
    per_epoch = build(replace(config, steps=1)).batches.per_epoch
    wanted = epochs if epochs is not None else epochs_for(config.data)
    return replace(config, steps=max(1, round(wanted * per_epoch)))


def complete_for(data: Dataset, config: Config) -> Config:
    """All of that but the number of steps."""
    if config.device not in ("auto", "cpu", "cuda"):
        raise UsageError(f"--device must be auto, cpu or cuda, but is {config.device!r}.")
    if config.device == "cuda" and not torch.cuda.is_available():
        raise UsageError("--device cuda was asked for, but torch sees no GPU here: use --device cpu.")
    device = ("cuda" if torch.cuda.is_available() else "cpu") if config.device == "auto" else config.device
    name = suitable(data.shape) if config.network == "auto" else config.network
    fifth = 0 if data.validation else (config.labels or int((data.train.labels >= 0).sum())) // 5
    return replace(
        config,
        data=str(Path(config.data).resolve()) if is_folder(config.data) else config.data,
        data_dir=str(Path(config.data_dir).resolve()) if config.data_dir else "",
        init=",".join(str(Path(start).resolve()) for start in config.init.split(",") if start),
        size=data.shape[1] if is_folder(config.data) else 0,
        validation=fifth if config.validation < 0 else config.validation,
        network=name,
        width=config.width or suitable_width(name, device == "cuda"),
        device=device,
        threads=config.threads or len(os.sched_getaffinity(0)),
    )


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


def networks(config: Config, shape: tuple[int, ...], classes: int, own: Make | None = None) -> Networks:
    """The run's network (`own` makes the user's), each initialised by itself or from a pretraining run."""
    known = recipe(config.method)
    starts = [trunk(Path(start)) for start in config.init.split(",") if start]

    def student(i: int, scale: float = 1.0) -> nn.Module:
        if own and scale != 1:
            raise UsageError("A network of one's own cannot be made wider or narrower: leave all students alike.")
        seed_global(config.seed, "initialisation", i)
        width = max(1, round(scale * config.width))
        net = own() if own else network(config.network, shape, known.classes or classes, width, config.dropout)
        if starts:
            plant(net, starts[i % len(starts)], config.init)
        return net.to(config.device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    return student


def make_method(config: Config, material: Material) -> Method:
    known = recipe(config.method)
    with untouched_generator():
        return known.build(material, known.options(**config.options))


def build(config: Config) -> Run:
    return assemble(config, load(config.data, config.data_dir, config.size))


def assemble(config: Config, data: Dataset, own: Make | None = None, alone: bool = False) -> Run:
    """A run on these data. `alone`: without unlabelled images, the labelled ones stand in for them."""
    parts = split(data, config.labels, config.seed, config.validation, config.balanced, config.unlabelled)
    held_out = Part(data.train.images[parts.validation], data.train.labels[parts.validation])
    if len(data.shape) == 1 and (config.translate or config.flip):
        raise UsageError(f"{config.data} holds vectors, which cannot be shifted or mirrored: use --noise alone.")
    if alone and not len(parts.unlabelled):
        parts = replace(parts, unlabelled=parts.labelled)
    labels = corrupt(parts.visible(data.train.labels), config.label_noise, len(data.classes), config.seed)
    images, labels = data.train.images.to(config.device), labels.to(config.device)
    views: dict[str, Augmentation] = {"weak": weak(config.translate, config.flip, config.noise)}
    if data.train.images.dtype == torch.uint8:
        views["strong"] = Chain((views["weak"], RandAugment(*data.scale)))
    else:  # numbers that are no pixels: more noise
        views["strong"] = Chain((views["weak"], Noise(2 * config.noise or 0.5)))
    method = make_method(
        config,
        Material(
            network=networks(config, data.shape, len(data.classes), own),
            classes=len(data.classes),
            images=images,
            labels=labels,
            pool=torch.cat([parts.labelled, parts.unlabelled]),
            normalised=data.normalised,
            weak=views["weak"],
        ),
    )
    if method.sees == "both" and not len(parts.unlabelled):
        raise UsageError(
            f"{config.data} has no unlabelled images, from which {config.method} learns: add some, ask for fewer "
            "--labels, or use --method supervised."
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
        views=views,
        method=method,
        optimiser=torch.optim.SGD(
            [p for net in method.students for p in net.parameters()],
            lr=config.learning_rate,
            momentum=config.momentum,
            weight_decay=config.weight_decay,
            nesterov=config.momentum > 0,
            foreach=True,
        ),
        images=images,
        labels=labels,
        validation=data.validation if data.validation and not len(held_out) else held_out,
    )


@contextmanager
def threads(n: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)
