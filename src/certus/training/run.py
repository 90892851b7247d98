"""A run: data, split, views, method and optimiser of one config, and one training step."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from certus.config import Config
from certus.core.method import Method, total
from certus.core.schedules import PACES, Clock, rising, warmed
from certus.core.step import Batch, Step
from certus.data import Dataset, Part
from certus.data.batches import Batches
from certus.data.split import Split
from certus.distributed.team import ALONE, Team
from certus.errors import CertusError
from certus.networks.precision import autocast
from certus.randomness import seed_of
from certus.training.evaluation import errors, probabilities
from certus.training.gradients import Losses, losses_of
from certus.training.observer import Observer
from certus.views import Views

Phase = Callable[[str], AbstractContextManager[None]]


class Diverged(CertusError):
    """A loss that is not finite."""


@dataclass(frozen=True, eq=False)
class Run:
    """Everything that a config means, built and ready for step 0."""

    config: Config
    data: Dataset
    inputs: Dataset  # what the networks see: the data, or the features of its pictures
    split: Split
    batches: Batches
    views: Views
    method: Method
    optimiser: torch.optim.Optimizer
    images: Tensor  # (N, …) the training images, on the device, as stored
    labels: Tensor  # (N,) −1 where the run may not look
    validation: Part  # never trained on
    guesses: Tensor | None = None  # (N,) `labels`, and guesses in place of some −1, for the warm-up
    prior: Tensor | None = None  # (C,) log frequency of each class among the labels, if the loss makes up for it
    team: Team = ALONE  # of processes that train it together

    @cached_property
    def losses(self) -> Losses:
        """Of a step, by term; with several processes, their gradients are reduced."""
        return losses_of(self.method, self.team)

    @property
    def images_per_step(self) -> int:
        return self.batches.size(self.method.sees)

    @property
    def warm_steps(self) -> int:
        return round(self.config.warm_up * self.config.steps)

    def clock(self, number: int) -> Clock:
        config, batches = self.config, self.batches
        return Clock(
            number, config.steps, self.images_per_step, batches.per_epoch, self.warm_steps, epochs=config.clock
        )

    def step(self, number: int) -> Step:
        """The number-th step, from 0: a pure function of config and number."""
        clock = self.clock(number)
        index = self.batches.warm(number) if clock.warming else self.batches(number, self.method.sees)
        index = index.to(self.images.device, non_blocking=True)
        labelled = len(index) if clock.warming else self.batches.sizes[0]
        labels = self.labels if self.guesses is None or not clock.warming else self.guesses
        batch = Batch(self.inputs.normalised(self.images[index]), labels[index], index, labelled, self.prior)
        return Step(batch, clock, self.views, seed_of(self.config.seed, "steps"), self.team.rows)

    def rate(self, number: int) -> float:
        """The learning rate of the number-th step."""
        return self.config.learning_rate * self.pace(number)

    def pace(self, number: int) -> float:
        """The factor of every learning rate at the number-th step: the method's own, or that of the settings."""
        pace, steps = self.method.pace or PACES[self.config.pace], self.config.steps
        rise = rising(number) if self.config.optimiser == "adam" else 1.0
        return rise * warmed(pace, number / steps, self.warm_steps / steps)

    def advance(self, number: int, observer: Observer | None = None) -> dict[str, Tensor]:
        """One training step; its losses by term. A loss that is not finite moves no weight and stops the run.

        On a GPU the step does not wait for its losses: the caller checks them when it reads them.
        """
        phase: Phase = observer.watch.phase if observer else unwatched
        with phase("batch"):
            step = self.step(number)
        if observer:
            step = observer.timed(step)
        with phase("losses"), autocast(self.config.precision, self.config.device):
            losses = self.losses(step)
        detached = {name: loss.detach() for name, loss in losses.items()}
        if not self.images.is_cuda:
            check_finite(detached, number)
        for group in self.optimiser.param_groups:
            group["lr"] = group["initial_lr"] * self.pace(number)
        with phase("backward"):
            self.optimiser.zero_grad(set_to_none=True)
            loss = total(losses)
            loss.backward()
            if self.images.is_cuda:
                self.drop_gradient_unless(torch.isfinite(loss))
        with phase("optimiser"):
            self.optimiser.step()
        with phase("followers"):
            self.method.follow(step)
        if observer:
            with phase("observing"):
                observer.see(step)
        return detached

    def drop_gradient_unless(self, finite: Tensor) -> None:
        """No gradient from a loss that is not finite, decided where the tensors are."""
        for group in self.optimiser.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.grad = torch.where(finite, p.grad, 0.0)

    def validation_answers(self) -> list[Tensor]:
        """The probabilities (N, C) of each answering network; empty without validation images."""
        images, nets, normalised = self.validation.images, self.method.answers, self.inputs.normalised
        return [probabilities(n, normalised, images, self.config.looks, team=self.team) for n in nets if len(images)]

    def validation_errors(self) -> list[float]:
        """Of each answering network; empty without validation images."""
        part, nets, looks, team = self.validation, self.method.answers, self.config.looks, self.team
        return errors(nets, self.inputs.normalised, part.images, part.labels, looks, team) if len(part) else []


def unwatched(name: str) -> AbstractContextManager[None]:  # noqa: ARG001 (a phase has a name)
    return nullcontext()


def check_finite(losses: Mapping[str, Tensor | float], number: int) -> None:
    for name, loss in losses.items():
        if not math.isfinite(loss):
            raise Diverged(
                f"The loss became {float(loss)} in step {number + 1}, term '{name}'. The last good checkpoint is "
                "kept; try a smaller `learning_rate` or `weight`."
            )
