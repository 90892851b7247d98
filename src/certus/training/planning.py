"""How long a run trains: steps from epochs or from minutes."""

from __future__ import annotations

import time
from dataclasses import replace
from statistics import fmean

from certus.config import Config, decide, steps_per_epoch
from certus.config.presets import epochs_for
from certus.data import load
from certus.errors import UsageError
from certus.training.build import build
from certus.training.threads import threads

WARM, TIMED = 3, 10  # steps that are not timed, and that are


def complete(config: Config, epochs: float | None = None, minutes: float | None = None) -> Config:
    """The config with nothing left to decide, the number of steps included."""
    data = load(config.data, config.data_dir, config.size)
    config = decide(config, data)
    if config.steps:
        return config
    if minutes is not None:
        return replace(config, steps=steps_within(config, minutes))
    wanted = epochs if epochs is not None else epochs_for(config.data)
    return replace(config, steps=max(1, round(wanted * steps_per_epoch(config, data))))


def steps_within(config: Config, minutes: float) -> int:
    """How many steps fit, by timing a few of them and one validation on a copy that is thrown away."""
    with threads(config.threads):
        run = build(replace(config, steps=1_000_000))
        for number in range(WARM):
            run.advance(number)
        times = []
        for number in range(WARM, WARM + TIMED):
            start = time.perf_counter()
            run.advance(number)
            times.append(time.perf_counter() - start)
        start = time.perf_counter()
        run.validation_errors()
        validation = time.perf_counter() - start
    return max(1, int(60 * minutes / (fmean(times) + validation / run.batches.per_epoch)))


def check_length(steps: float | None, epochs: float | None, minutes: float | None) -> None:
    """Refuse two lengths, and a length that is not positive."""
    given = {n: v for n, v in (("steps", steps), ("epochs", epochs), ("minutes", minutes)) if v is not None}
    if len(given) > 1:
        raise UsageError(f"Give only one of {', '.join(f'`{name}`' for name in given)}.")
    for name, value in given.items():
        if not value > 0:
            raise UsageError(f"`{name}` must be more than 0, but is {value:g}.")
