"""How long a run trains: steps from epochs or from minutes, and what follows from the number of steps."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from statistics import fmean

from certus.config import Config, decide, split_of, steps_per_epoch, visible_labels
from certus.config.engine import (
    FEW,
    LONG,
    PRICE,
    WIDER,
    WarmUp,
    fine_warm_up_for,
    labels_alone,
    smaller_batches,
    usual_steps,
    warm_up_for,
)
from certus.config.presets import epochs_for
from certus.config.settings import MOST_STEPS
from certus.data import Dataset, Part, load
from certus.data.batches import Sees, images_in_a_step
from certus.data.descriptors import describe
from certus.data.folds import error_by_folds
from certus.data.split import Split
from certus.distributed.team import ALONE, Team
from certus.errors import UsageError
from certus.teachers import Propagation
from certus.text import brief
from certus.training.build import MakeNetwork, build_on
from certus.training.embedding import trunk_of
from certus.training.run import Run
from certus.training.threads import threads

WARM, FEWEST, MOST, ENOUGH = 1, 2, 8, 2.0  # steps that are not timed, that are (at least, at most), seconds for them
SAMPLE = 256  # validation images whose answers are timed
PLANNING = 0.25  # share of the minutes that timing may take
LOOKED = 1000  # labelled images that show how difficult they are
LEFT = 0.1  # least share of the minutes for steps, whatever a method does beside them
TRIED, EMBEDDING = 16, 0.8  # pictures whose embedding is timed; share of the minutes that it may take
LONGEST = MOST_STEPS  # also of epochs and minutes: so many minutes are 190 years


def complete(config: Config, epochs: float | None = None, minutes: float | None = None, team: Team = ALONE) -> Config:
    """The config with nothing left to decide, the number of steps included."""
    found = complete_on(data_of(config), config, epochs, minutes, team=team)
    return told_config(team, lambda: found)


def told_config(team: Team, make: Callable[[], Config]) -> Config:
    """That of rank 0."""
    return make() if team.size == 1 else Config(**json.loads(team.told(lambda: json.dumps(asdict(make())))))


def data_of(config: Config) -> Dataset:
    return load(config.data, config.data_dir, config.size, config.fit)


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
        return warmed_up(
            replace(embeddable(decided, data, minutes, not config.threads), steps=usual_steps(config)), data
        )
    if minutes is not None:
        return within(decided, data, minutes, not config.threads, not config.width, make, team)
    if epochs is None and (config.network == "sprint" or decided.weights):
        return warmed_up(replace(decided, steps=usual_steps(config)), data)
    wanted = epochs_for(config.data) if epochs is None else epochs
    per_epoch = steps_per_epoch(decided, data)
    if wanted * per_epoch > MOST_STEPS:
        raise UsageError(f"`epochs` must be at most {MOST_STEPS // per_epoch:,} here, but is {wanted:g}.")
    return warmed_up(replace(decided, steps=max(1, round(wanted * per_epoch))), data)


def complete_seeing(config: Config, images: float) -> Config:
    """The config with the fewest steps that see so many unlabelled images. Those of the warm-up see none."""
    data = data_of(config)
    decided = decide(config, data)

    warm = warm_share(decided, data)

    def seen(steps: int) -> float:
        return steps * (1 - warm(steps)) * decided.unlabelled_batch

    least, most = 1, 1
    while seen(most) < images and most < MOST_STEPS:
        most *= 2
    while least < most:
        middle = (least + most) // 2
        least, most = (least, middle) if seen(middle) >= images else (middle + 1, most)
    return warmed_up(replace(decided, steps=least), data)


def timed_within(config: Config, minutes: float) -> Config:
    """The config with as many steps as fit. All minutes are for training: the timing is not part of them, but what a
    method does beside its steps is."""
    data = data_of(config)
    decided, wider = decide(config, data), not config.width
    plan = within(decided, data, minutes, False, wider, planning=0.0)
    if each := seconds_of_a_graph(decided, data):
        graphs = 1 + plan.steps // steps_per_epoch(plan, data)
        left = max(minutes - graphs * each / 60, LEFT * minutes)
        plan = within(decided, data, left, False, wider, planning=0.0)
    return plan


def seconds_of_a_graph(config: Config, data: Dataset) -> float:
    """To propagate the labels once, which takes longer than many steps; 0 for methods that do not."""
    with threads(config.threads):
        run = build_on(data, replace(config, steps=1_000_000, warm_up=0.0), reuse_labelled=True)
        found = [f for f in run.method.followers if isinstance(f, Propagation)]
        return sum(seconds(partial(f.follow, run.step(run.config.steps - 1)), config.threads) for f in found)


def minutes_of(config: Config) -> float:
    """How long a run of these steps takes, by timing a few."""
    each = cost(config, data_of(config))
    return config.steps * (config.warm_up * each.warm + (1 - config.warm_up) * each.full) / 60


def embeddable(config: Config, data: Dataset, minutes: float, choose_threads: bool) -> Config:
    """With as many unlabelled pictures as can be embedded in this time, if those are fewer than there are."""
    config, each = quick_to_embed(config, data, choose_threads)
    parts = split_of(config, data)
    others = len(parts.labelled) + len(parts.validation) + len(data.test) + len(data.validation or ())
    most = max(1, int(EMBEDDING * 60 * minutes / each) - others)
    return config if len(parts.unlabelled) <= most else replace(config, unlabelled=most)


def quick_to_embed(config: Config, data: Dataset, choose_threads: bool) -> tuple[Config, float]:
    """With the number of threads that is quicker (see `within`), and the seconds to embed a picture."""
    few, trunk, found = data.train.images[:TRIED], trunk_of(config, data), {}
    for n in sorted({1, config.threads} if choose_threads else {config.threads}):
        with threads(n):
            trunk(few[:1])
            found[n] = seconds(lambda: trunk(few), n) / len(few)
    best = min(found, key=found.__getitem__)
    return replace(config, threads=best), found[best]


def warmed_up(config: Config, data: Dataset) -> Config:
    """With the warm-up that suits its number of steps, if that is left open."""
    return replace(config, warm_up=warm_share(config, data)(config.steps))


def warm_share(config: Config, data: Dataset) -> Callable[[int], float]:
    """The share of the steps that learns from labels alone, by the number of steps."""
    if config.warm_up >= 0:
        return lambda _: config.warm_up
    need, batch = warm_up(config, data), in_a_step(config)
    return lambda steps: need.share(steps, batch)


def in_a_step(config: Config) -> int:
    """Images of a step that warms up."""
    return config.labelled_batch + config.unlabelled_batch


def warm_up(config: Config, data: Dataset) -> WarmUp:
    """What suits these labels."""
    parts = split_of(config, data)
    if config.weights:
        return fine_warm_up_for(len(parts.labelled))
    return warm_up_for(len(parts.labelled), difficulty(config, data, parts))


def difficulty(config: Config, data: Dataset, parts: Split) -> float:
    """The error of a linear model on edges and colours, by folds of the labels, relative to that of chance."""
    if len(data.shape) != 3:
        return 0.0
    looked = parts.labelled[:LOOKED]
    labels = visible_labels(config, data, parts)[looked]
    error, _ = error_by_folds(describe(data.train.images, looked), labels)
    return min(1.0, error / (1 - 1 / len(data.classes)))


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
    planning: float = PLANNING,
) -> Config:
    """With as many steps as fit, by timing a few on a copy that is thrown away. The timing is part of the minutes, up
    to the share `planning` of them.

    `choose_threads`: also time one thread, and take it if it is quicker. That is so on a busy machine, where threads
    wait for each other at every operation. `choose_width`: where many steps fit, the network is wider, at a known
    price. Where few fit, batches are smaller. Only those are timed: a step of the usual batch takes longer in
    proportion to its images, or a little less.
    """
    began, budget = time.process_time(), 60 * minutes

    def fitted(config: Config, cost: Cost) -> Config:
        spent = team.agreed((time.process_time() - began) / config.threads)
        left = budget - min(planning * budget, spent)
        warm = warm_share(config, data)
        steps = cost.steps(left, warm)
        return replace(config, steps=steps, warm_up=warm(steps))

    candidates = {1, config.threads} if choose_threads else {config.threads}
    timed = smaller_batches(config) or config
    costs = {n: cost(replace(timed, threads=n), data, make, team) for n in sorted(candidates)}
    threads = min(costs, key=lambda n: costs[n].full)
    found = costs[threads]
    images = [images_in_a_step((c.labelled_batch, c.unlabelled_batch), found.sees) for c in (config, timed)]

    def planned(width: int, price: float) -> Config:
        usual, smaller = (replace(c, threads=threads, width=width) for c in (config, timed))
        plan = fitted(usual, found.times(price * images[0] / images[1]))
        if smaller != usual and plan.steps < FEW:
            plan = fitted(smaller, found.times(price))
        if config.warm_up < 0 and plan.warm_up == 1 and (alone := labels_alone(plan)):
            return fitted(alone, found.times(price * in_a_step(alone) / in_a_step(timed)))
        return plan

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
