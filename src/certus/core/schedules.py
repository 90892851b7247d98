"""The paper's clock: every quantity that changes during training, as a function of the epoch e = 1 … 300.

The paper's constants assume a run of more than 240 epochs, 300 in the recipes that it follows, and batches of 512. A
run of any other length has schedules of the same shape, because e counts 300ths of the run and k scales with the batch.
With 300 epochs and |B| = 512 the numbers are the paper's. Methods with another published length have their own clock.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

EPOCHS = 300
OPENED = 210  # E, the epoch after which the probabilistic filter drops nothing
BATCH = 512


@dataclass(frozen=True)
class Clock:
    """The position in a run: step number `step` of `steps`, counted from 0, on batches of `batch` images."""

    step: int
    steps: int
    batch: int = BATCH
    per_epoch: int = 1  # steps in one pass over the unlabelled images
    warm: int = 0  # steps at the start of the run that learn from labels alone
    epochs: int = EPOCHS  # that the run stands for, whatever its length

    @property
    def warming(self) -> bool:
        """Whether this step belongs to the warm-up, which is not part of the paper's clock."""
        return self.step < self.warm

    @property
    def epoch(self) -> int:
        """e = ⌈epochs × fraction of the run done, this step included⌉, in integers: there is no rounding error."""
        return 0 if self.warming else -(-self.epochs * (self.step + 1 - self.warm) // (self.steps - self.warm))

    @property
    def ends_pass(self) -> bool:
        """Whether this step ends a pass over the unlabelled images."""
        return (self.step + 1) % self.per_epoch == 0

    @property
    def ends_run(self) -> bool:
        return self.step + 1 == self.steps


def k(e: float, batch: int = BATCH, beta: float = 8.0) -> float:
    """How many of the most certain targets the hard filter keeps: k = βe, scaled by |B|/512."""
    return beta * e * batch / BATCH


def p_max(e: float, rho: float = 0.4, until: float = OPENED) -> float:
    """The largest probability of being dropped: P_max = 1 − ρe/E, and 0 beyond E."""
    return 1.0 - rho * e / until if e <= until else 0.0


def v_max(e: float, base: float = 4.0, per: float = 80.0) -> float:
    """V_max of the temperature: max(V_b − e/80, 1)."""
    return max(base - e / per, 1.0)


def ramp_up(e: float, over: float = 80.0) -> float:
    """exp(−5(1−x)²), x = e/over up to 1: from nearly 0 to 1. A ramp over 0 epochs is 1 from the start."""
    x = min(e / over, 1.0) if over > 0 else 1.0
    return math.exp(-5.0 * (1.0 - x) ** 2)


def cosine(fraction: float) -> float:
    """½(1 + cos πx): from 1 at the start of a run to 0 at its end."""
    return 0.5 * (1.0 + math.cos(math.pi * fraction))


def linear(fraction: float) -> float:
    """1 − x: from 1 at the start of a run to 0 at its end."""
    return 1.0 - fraction


PACES = {"cosine": cosine, "linear": linear}
RISE = 10  # steps in which Adam's rate rises: its first ones have their full length in every direction
COOLED, RESTART = 0.1, 0.3  # factors of the rate at the end of a warm-up, and after it


def warmed(pace: Callable[[float], float], fraction: float, warm: float) -> float:
    """A pace after a warm-up, which takes the share `warm` of the run: 1 to 0.1 in a line, then 0.3 times the pace.

    The end of the warm-up is at a low rate, so that the first targets come from a network that has settled.
    """
    if warm in (0, 1):  # a run of one kind has one pace
        return pace(fraction)
    if fraction < warm:
        return 1.0 - (1.0 - COOLED) * fraction / warm
    return RESTART * pace((fraction - warm) / (1.0 - warm))


def rising(number: int) -> float:
    """The factor of a rate that begins low, at the number-th step."""
    return min(1.0, (number + 1) / RISE)


Schedule = Callable[[Clock], float]


@dataclass(frozen=True)
class Constant:
    """The same value at every step."""

    value: float

    def __call__(self, clock: Clock) -> float:  # noqa: ARG002 (a schedule is given the clock)
        return self.value

    def __repr__(self) -> str:
        return f"{self.value:g}"


@dataclass(frozen=True)
class RampUp:
    """λ(e) = λ_max exp(−5(1−x)²), x = e/over."""

    peak: float
    over: float = 80.0

    def __call__(self, clock: Clock) -> float:
        return self.peak * ramp_up(clock.epoch, self.over)

    def __repr__(self) -> str:
        return f"{self.peak:g}·exp(−5(1−e/{self.over:g})²)" if self.over > 0 else f"{self.peak:g}"


@dataclass(frozen=True)
class Keep:
    """k of the hard filter."""

    beta: float = 8.0

    def __call__(self, clock: Clock) -> float:
        return k(clock.epoch, clock.batch, self.beta)

    def __repr__(self) -> str:
        return f"{self.beta:g}e·|B|/{BATCH}"


@dataclass(frozen=True)
class Drop:
    """P_max of the probabilistic filter."""

    rho: float = 0.4
    until: float = OPENED

    def __call__(self, clock: Clock) -> float:
        return p_max(clock.epoch, self.rho, self.until)

    def __repr__(self) -> str:
        return f"1 − {self.rho:g}e/{self.until:g}"


@dataclass(frozen=True)
class Heat:
    """V_max of the temperature."""

    base: float = 4.0
    per: float = 80.0

    def __call__(self, clock: Clock) -> float:
        return v_max(clock.epoch, self.base, self.per)

    def __repr__(self) -> str:
        return f"max({self.base:g} − e/{self.per:g}, 1)"
