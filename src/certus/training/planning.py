"""How long a run trains: steps from epochs or from minutes, and what follows from the number of steps."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from statistics import fmean

from torch import Tensor

from certus.config import Config, decide, split_of, steps_per_epoch
from certus.config.engine import FEW, LONG, PRICE, WIDER, smaller_batches, usual_steps, warm_share
from certus.config.presets import epochs_for
from certus.config.settings import MOST_STEPS
from certus.data import Dataset, Part, load
from certus.data.batches import Sees, images_in_a_step
from certus.distributed.team import ALONE, Team
from certus.errors import UsageError
from certus.text import brief
from certus.training.build import MakeNetwork, build_on
from certus.training.embedding import Trunk, trunk_of
from certus.training.run import Run
from certus.training.threads import threads

WARM, FEWEST, MOST, ENOUGH = 1, 2, 8, 2.0  # steps that are not timed, that are (at least, at most), seconds for them
SAMPLE = 256  # validation images whose answers are timed
PLANNING = 0.25  # share of the minutes that timing may take
TRIED, EMBEDDING = 16, 0.8  # pictures whose embedding is timed; share of the minutes that it may take
LONGEST = MOST_STEPS  # also of epochs and minutes: so many minutes are 190 years


def complete(config: Config, epochs: float | None = None, minutes: float | None = None, team: Team = ALONE) -> Config:
    """The config with nothing left to decide, the number of steps included."""
    data = load(config.data, config.data_dir, config.size, config.fit)
    found = complete_on(data, config, epochs, minutes, team=team)
    return told_config(team, lambda: found)


def told_config(team: Team, make: Callable[[], Config]) -> Config:
    """That of rank 0."""
    return make() if team.size == 1 else Config(**json.loads(team.told(lambda: json.dumps(asdict(make())))))


def complete_on(
    data: Dataset,
    config: Config,
    epochs: float | None = None,
    minutes: float | None = None,
    make: MakeNetwork | None = None,
    team: Team = ALONE,
) -> Config:
    """The same for data that are loaded already. `make` builds the user's own network. A `team` times its steps
    together, and rank 0 decides."""
    decided = told_config(team, lambda: decide(config, data))
    decided = decided if config.threads else replace(decided, threads=team.threads(decided.threads))
    split_of(decided, data)  # refuses labels that the data do not have before anything is trained
    if decided.steps:
        return warmed_up(decided, data)
    if decided.depth == "head" and minutes is not None:
        return warmed_up(replace(embeddable(decided, data, minutes), steps=usual_steps(config)), data)
    if minutes is not None:
        return within(decided, data, minutes, not config.threads, not config.width, make, team)
    if epochs is None and (config.network == "sprint" or decided.weights):
        return warmed_up(replace(decided, steps=usual_steps(config)), data)
    wanted = epochs_for(config.data) if epochs is None else epochs
    per_epoch = steps_per_epoch(decided, data)
    if wanted * per_epoch > MOST_STEPS:
        raise UsageError(f"`epochs` must be at most {MOST_STEPS // per_epoch:,} here, but is {wanted:g}.")
    return warmed_up(replace(decided, steps=max(1, round(wanted * per_epoch))), data)


def embeddable(config: Config, data: Dataset, minutes: float) -> Config:
    """With as many unlabelled pictures as can be embedded in this time, if those are fewer than there are."""
    with threads(config.threads):
        each = seconds_each(trunk_of(config, data), data.train.images, config.threads)
    parts = split_of(config, data)
    others = len(parts.labelled) + len(parts.validation) + len(data.test) + len(data.validation or ())
    most = max(1, int(EMBEDDING * 60 * minutes / each) - others)
    return config if len(parts.unlabelled) <= most else replace(config, unlabelled=most)


def seconds_each(trunk: Trunk, images: Tensor, threads: int) -> float:
    """To embed a picture."""
    few = images[:TRIED]
    trunk(few[:1])
    return seconds(lambda: trunk(few), threads) / len(few)


def warmed_up(config: Config, data: Dataset) -> Config:
    """With the warm-up that suits its number of steps, if that is left open."""
    return config if config.warm_up >= 0 else replace(config, warm_up=warm_up(config, config.steps, data))


def warm_up(config: Config, steps: int, data: Dataset) -> float:
    batch = config.labelled_batch + config.unlabelled_batch
    return warm_share(steps, batch, len(split_of(config, data).labelled), fine=bool(config.weights))


@dataclass(frozen=True)
class Cost:
    """Seconds of a step: one that learns from labels alone, and any other."""

    warm: float
    full: float
    sees: Sees = "both"

    def times(self, factor: float) -> Cost:
        return Cost(factor * self.warm, factor * self.full, self.sees)

    def steps(self, seconds: float, share: Callable[[int], float]) -> int:
        """How many fit, where `share` of them warm up: the largest number whose time is not longer."""
        least, most = 1, max(1, min(int(seconds / min(self.warm, self.full)), MOST_STEPS))
        while least < most:
            middle = (least + most + 1) // 2
            warm = share(middle)
            fits = middle * (warm * self.warm + (1 - warm) * self.full) <= seconds
            least, most = (middle, most) if fits else (least, middle - 1)
        return least


def within(
    config: Config,
    data: Dataset,
    minutes: float,
    choose_threads: bool,
    choose_width: bool,
    make: MakeNetwork | None = None,
    team: Team = ALONE,
) -> Config:
    """With as many steps as fit, by timing a few on a copy that is thrown away; the timing is part of the minutes.

    `choose_threads`: also time one thread, and take it if it is quicker. That is so on a busy machine, where threads
    wait for each other at every operation. `choose_width`: where many steps fit, the network is wider, at a known
    price. Where few fit, batches are smaller. Only those are timed: a step of the usual batch takes longer in
    proportion to its images, or a little less.
    """
    began, budget = time.process_time(), 60 * minutes

    def fitted(config: Config, cost: Cost) -> Config:
        spent = team.agreed((time.process_time() - began) / config.threads)
        left = budget - min(PLANNING * budget, spent)
        if config.warm_up >= 0:
            return replace(config, steps=cost.steps(left, lambda _: config.warm_up))
        steps = cost.steps(left, lambda steps: warm_up(config, steps, data))
        return replace(config, steps=steps, warm_up=warm_up(config, steps, data))

    candidates = {1, config.threads} if choose_threads else {config.threads}
    timed = smaller_batches(config) or config
    costs = {n: cost(replace(timed, threads=n), data, make, team) for n in sorted(candidates)}
    threads = min(costs, key=lambda n: costs[n].full)
    found = costs[threads]
    images = [images_in_a_step((c.labelled_batch, c.unlabelled_batch), found.sees) for c in (config, timed)]

    def planned(width: int, price: float) -> Config:
        usual, smaller = (replace(c, threads=threads, width=width) for c in (config, timed))
        plan = fitted(usual, found.times(price * images[0] / images[1]))
        return fitted(smaller, found.times(price)) if smaller != usual and plan.steps < FEW else plan

    plan = planned(config.width, 1.0)
    many = choose_width and config.network == "sprint" and found.sees == "both" and plan.warm_up < 1
    many = many and plan.steps * images_in_a_step((plan.labelled_batch, plan.unlabelled_batch), found.sees) >= LONG
    return planned(WIDER, PRICE) if many and config.width < WIDER else plan


def cost(config: Config, data: Dataset, make: MakeNetwork | None = None, team: Team = ALONE) -> Cost:
    """Of both kinds of step, each with its share of the validation, on a copy that is thrown away."""
    with threads(config.threads):
        run = build_on(data, replace(config, steps=1_000_000, warm_up=0.0), make, reuse_labelled=True, team=team)
        part = run.validation
        few = replace(run, validation=Part(part.images[:SAMPLE], part.labels[:SAMPLE]))
        share = len(part) / max(1, len(few.validation)) / run.batches.per_epoch
        validation = share * seconds(few.validation_errors, config.threads, team)
        full = fmean(timed(run)) + validation
        if not config.warm_up:
            return Cost(full, full, run.method.sees)
        return Cost(fmean(timed(replace(run, config=replace(run.config, warm_up=0.5)))) + validation, full)


def timed(run: Run) -> list[float]:
    """Seconds of a few steps."""
    for number in range(WARM):
        run.advance(number)
    times: list[float] = []
    while len(times) < FEWEST or (len(times) < MOST and sum(times) < ENOUGH):
        times.append(seconds(lambda: run.advance(WARM + len(times)), run.config.threads, run.team))
    return times


def seconds(work: Callable[[], object], threads: int, team: Team = ALONE) -> float:
    """One thread is timed by its processor's time, so that a busy machine does not shorten the run; several, and
    several processes, by a clock, because they wait for each other."""
    clock = clock_of(threads) if team.size == 1 else time.perf_counter
    start = clock()
    work()
    return team.agreed(clock() - start)


def clock_of(threads: int) -> Callable[[], float]:
    return time.process_time if threads == 1 else time.perf_counter


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
