"""How long a run trains: steps from epochs or from minutes, and what follows from the number of steps."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import fmean

from certus.config import Config, decide, steps_per_epoch
from certus.config.engine import smaller_batches, usual_steps, warm_share
from certus.config.presets import epochs_for
from certus.data import Dataset, load
from certus.errors import UsageError
from certus.training.build import MakeNetwork, build_on
from certus.training.run import Run
from certus.training.threads import threads

WARM, FEWEST, MOST, ENOUGH = 1, 2, 8, 2.0  # steps that are not timed, that are (at least, at most), seconds for them
LONGEST = 0.25  # share of the minutes that timing may take


def complete(config: Config, epochs: float | None = None, minutes: float | None = None) -> Config:
    """The config with nothing left to decide, the number of steps included."""
    return complete_on(load(config.data, config.data_dir, config.size), config, epochs, minutes)


def complete_on(
    data: Dataset,
    config: Config,
    epochs: float | None = None,
    minutes: float | None = None,
    make: MakeNetwork | None = None,
) -> Config:
    """The same for data that are loaded already. `make` builds the user's own network."""
    decided = decide(config, data)
    if not decided.steps and minutes is not None:
        return within(decided, data, minutes, choose_threads=not config.threads, make=make)
    if not decided.steps:
        wanted = epochs if epochs is not None else epochs_for(config.data)
        engine = epochs is None and config.network == "sprint"
        steps = usual_steps(config.data) if engine else max(1, round(wanted * steps_per_epoch(decided, data)))
        decided = replace(decided, steps=steps)
    return warmed_up(decided)


def warmed_up(config: Config) -> Config:
    """With the warm-up that suits its number of steps, if that is left open."""
    images = config.labelled_batch + config.unlabelled_batch
    return config if config.warm_up >= 0 else replace(config, warm_up=warm_share(config.steps, images))


@dataclass(frozen=True)
class Cost:
    """Seconds of a step: one that learns from labels alone, and any other, with its share of the validation."""

    warm: float
    full: float

    def steps(self, seconds: float, images: int, warming: bool) -> tuple[int, float]:
        """How many fit, and the share of them that warms up."""
        if not warming:
            return max(1, int(seconds / self.full)), 0.0
        steps, share = max(1, int(seconds / self.full)), 0.0
        for _ in range(20):  # the share follows from the number of steps, and that from the share
            share = warm_share(steps, images)
            steps = max(1, int(seconds / (share * self.warm + (1 - share) * self.full)))
        return steps, share


def within(
    config: Config, data: Dataset, minutes: float, choose_threads: bool, make: MakeNetwork | None = None
) -> Config:
    """With as many steps as fit, by timing a few on a copy that is thrown away; the timing is part of the minutes.

    `choose_threads`: also time one thread, and take it if it is quicker. That is so on a busy machine, where threads
    wait for each other at every operation.
    """
    began, budget = time.perf_counter(), 60 * minutes
    candidates = {1, config.threads} if choose_threads else {config.threads}
    costs = {n: cost(replace(config, threads=n), data, make) for n in sorted(candidates)}
    config = replace(config, threads=min(costs, key=lambda n: costs[n].full))
    spent, found = costs[config.threads], config
    while True:
        left = budget - min(LONGEST * budget, time.perf_counter() - began)
        steps, share = spent.steps(left, found.labelled_batch + found.unlabelled_batch, config.warm_up < 0)
        smaller = smaller_batches(found, steps)
        if smaller is None:
            return replace(found, steps=steps, warm_up=share if config.warm_up < 0 else config.warm_up)
        found = smaller
        spent = cost(found, data, make)


def cost(config: Config, data: Dataset, make: MakeNetwork | None = None) -> Cost:
    """Of both kinds of step, on a copy that is thrown away."""
    with threads(config.threads):
        run = build_on(data, replace(config, steps=1_000_000, warm_up=0.0), make, reuse_labelled=True)
        full = fmean(timed(run, config.threads)) + validation_share(run)
        if not config.warm_up or run.method.sees != "both":
            return Cost(full, full)
        warming = replace(run, config=replace(run.config, warm_up=0.5))
        return Cost(fmean(timed(warming, config.threads)), full)


def timed(run: Run, threads: int) -> list[float]:
    """Seconds of a few steps."""
    for number in range(WARM):
        run.advance(number)
    times: list[float] = []
    while len(times) < FEWEST or (len(times) < MOST and sum(times) < ENOUGH):
        times.append(seconds(lambda: run.advance(WARM + len(times)), threads))
    return times


def validation_share(run: Run) -> float:
    """Of the validation at the end of each epoch, in one step."""
    return seconds(run.validation_errors, run.config.threads) / run.batches.per_epoch


def seconds(work: Callable[[], object], threads: int) -> float:
    """One thread is timed by its processor's time, so that a busy machine does not shorten the run; several by a clock,
    because they wait for each other."""
    clock = time.process_time if threads == 1 else time.perf_counter
    start = clock()
    work()
    return clock() - start


def check_length(steps: float | None, epochs: float | None, minutes: float | None) -> None:
    """Refuse two lengths, and a length that is not positive."""
    given = {n: v for n, v in (("steps", steps), ("epochs", epochs), ("minutes", minutes)) if v is not None}
    if len(given) > 1:
        raise UsageError(f"Give only one of {', '.join(f'`{name}`' for name in given)}.")
    for name, value in given.items():
        if not value > 0:
            raise UsageError(f"`{name}` must be more than 0, but is {value:g}.")
