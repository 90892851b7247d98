"""How long a run trains: steps from epochs or from minutes."""

from __future__ import annotations

import time
from dataclasses import replace
from statistics import fmean

from certus.config import Config, decide, steps_per_epoch
from certus.config.presets import epochs_for
from certus.config.settings import MOST_STEPS
from certus.data import load
from certus.errors import UsageError
from certus.text import brief
from certus.training.build import build
from certus.training.threads import threads

WARM, FEWEST, MOST, ENOUGH = 1, 2, 10, 3.0  # steps that are not timed, that are (at least, at most), seconds for them
LONGEST = MOST_STEPS  # also of epochs and minutes: so many minutes are 190 years


def complete(config: Config, epochs: float | None = None, minutes: float | None = None) -> Config:
    """The config with nothing left to decide, the number of steps included."""
    data = load(config.data, config.data_dir, config.size)
    decided = decide(config, data)
    if decided.steps:
        return decided
    if minutes is not None:
        return within(decided, minutes, choose_threads=not config.threads)
    wanted = epochs if epochs is not None else epochs_for(config.data)
    per_epoch = steps_per_epoch(decided, data)
    if wanted * per_epoch > MOST_STEPS:
        raise UsageError(f"`epochs` must be at most {MOST_STEPS // per_epoch:,} here, but is {wanted:g}.")
    return replace(decided, steps=max(1, round(wanted * per_epoch)))


def within(config: Config, minutes: float, choose_threads: bool) -> Config:
    """With as many steps as fit, by timing a few on a copy that is thrown away.

    `choose_threads`: also time one thread, and take it if it is quicker. That is so on a busy machine, where threads
    wait for each other at every operation.
    """
    candidates = {1, config.threads} if choose_threads else {config.threads}
    seconds = {n: seconds_per_step(replace(config, threads=n)) for n in sorted(candidates)}
    threads = min(seconds, key=lambda n: seconds[n])
    return replace(config, threads=threads, steps=max(1, min(int(60 * minutes / seconds[threads]), MOST_STEPS)))


def seconds_per_step(config: Config) -> float:
    """Of a training step, with its share of the validation at the end of an epoch."""
    with threads(config.threads):
        run = build(replace(config, steps=1_000_000, warm_up=0.0))
        for number in range(WARM):
            run.advance(number)
        times: list[float] = []
        while len(times) < FEWEST or (len(times) < MOST and sum(times) < ENOUGH):
            start = time.perf_counter()
            run.advance(WARM + len(times))
            times.append(time.perf_counter() - start)
        start = time.perf_counter()
        run.validation_errors()
        validation = time.perf_counter() - start
    return fmean(times) + validation / run.batches.per_epoch


def check_length(steps: float | None, epochs: float | None, minutes: float | None) -> None:
    """Refuse two lengths, and a length that is not positive."""
    given = {n: v for n, v in (("steps", steps), ("epochs", epochs), ("minutes", minutes)) if v is not None}
    if len(given) > 1:
        raise UsageError(f"Give only one of {', '.join(f'`{name}`' for name in given)}.")
    for name, value in given.items():
        if not value > 0:
            raise UsageError(f"`{name}` must be more than 0, but is {brief(value)}.")
        if value > LONGEST:
            raise UsageError(f"`{name}` must be at most {LONGEST:,}, but is {brief(value)}.")
