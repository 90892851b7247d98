"""The process that leads a sweep: it proposes trials, hears their validation errors, and decides which go on.

There may be several, also on several machines that share the sweep's folder. They propose one after the other, under
the lock of the folder. A trial belongs to the process that holds its lock in claims/; if nobody does, it is taken over.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING, Any

from certus.errors import CertusError
from certus.experiments.cells import Cell
from certus.experiments.pool import AGAIN, Patient, Pool
from certus.experiments.sweep_plan import Search, Sweep
from certus.experiments.sweep_study import PATIENCE, Study
from certus.training.lock import Busy, locked
from certus.training.loop import Tick
from certus.training.run import Diverged
from certus.writing import put

if TYPE_CHECKING:
    import optuna

notices = logging.getLogger("certus")
DIVERGED = 100.0  # the error (%) of a run whose loss is no longer finite
CLAIMS = "claims"  # the folder of the locks of trials under way
PRUNED = "pruned"  # a file in the folder of a trial that is to stop


@dataclass
class Attempt:
    """A trial under way."""

    search: Search
    study: Study
    trial: optuna.Trial
    values: dict[str, Any]
    reported: set[int] = field(default_factory=set)
    errors: dict[int, float] = field(default_factory=dict)  # of the seeds that are done
    over: bool = False  # pruned: its worker is about to stop

    @property
    def name(self) -> str:
        return name_of(self.search, self.trial.number)


def name_of(search: Search, number: int) -> str:
    return f"{search.method} trial {number}"


OnTick = Callable[[Attempt, Cell, Tick], None]
OnEnd = Callable[[Attempt, str], None]  # with what became of it


@dataclass
class Leader:
    """Proposes trials, gives their runs to the workers, and decides which go on."""

    sweep: Sweep
    studies: Sequence[Study]
    on_tick: OnTick
    on_end: OnEnd
    under_way: dict[str, tuple[Attempt, Cell]] = field(default_factory=dict)  # by the name of the cell
    failures: dict[str, CertusError] = field(default_factory=dict)
    claims: dict[str, ExitStack] = field(default_factory=dict)  # the locks of the trials that are ours, by name

    def lead(self, pool: Pool, stopped: threading.Event) -> None:
        patient, look, others, told = Patient(pool), 0.0, 0, False
        while True:
            if len(self.under_way) < pool.size and time.monotonic() >= look:
                others = self.fill(patient, pool.size)
                look = time.monotonic() + AGAIN
            if not self.under_way:
                if not others:
                    return
                if not told:
                    notices.warning("Waiting for %d trials of other processes.", others)
                    told = True
            if event := patient.event(stopped):
                self.hear(patient, *event)
                look = look if event[0] == "tick" else 0.0

    def fill(self, pool: Patient, size: int) -> int:
        """Take over trials that nobody claims, and propose new ones, as far as there is room. No other process does the
        same at this moment. Returns how many trials others have."""
        others = 0
        with locked(self.sweep.out, PATIENCE):
            for search, study in self.pairs():
                for number in study.under_way():
                    if name_of(search, number) in self.claims:
                        continue
                    if len(self.under_way) < size and self.claim(search, number):
                        self.start(pool, self.attempt(search, study, study.trial(number)))
                    else:
                        others += 1
            while len(self.under_way) < size and (attempt := self.propose()):
                self.start(pool, attempt)
        return others

    def pairs(self) -> list[tuple[Search, Study]]:
        return list(zip(self.sweep.searches, self.studies, strict=True))

    def claim(self, search: Search, number: int) -> bool:
        """Whether this trial is ours now."""
        held = ExitStack()
        try:
            held.enter_context(locked(self.sweep.out / CLAIMS / f"{search.method}-{number:03}"))
        except Busy:
            return False
        self.claims[name_of(search, number)] = held
        return True

    def let_go(self) -> None:
        """Of the trials that are still under way: others may take them over."""
        for held in self.claims.values():
            held.close()

    def end(self, attempt: Attempt, outcome: str) -> None:
        self.claims.pop(attempt.name).close()
        self.on_end(attempt, outcome)

    def propose(self) -> Attempt | None:
        """A new trial of the method that has had the fewest; None if all have had their number."""
        hungry = [(s.begun(), i) for i, (_, s) in enumerate(self.pairs()) if s.begun() < s.budget]
        if not hungry:
            return None
        search, study = self.pairs()[min(hungry)[1]]
        trial = study.ask(search.usual)
        return self.attempt(search, study, trial) if self.claim(search, trial.number) else None

    def attempt(self, search: Search, study: Study, trial: optuna.Trial) -> Attempt:
        """The values of a trial that was killed are those that it had."""
        values = {axis.name: axis.suggest(trial) for axis in search.space.axes}
        known = study.study.get_trials(deepcopy=False)[trial.number]
        return Attempt(search, study, trial, values, set(known.intermediate_values))

    def start(self, pool: Patient, attempt: Attempt) -> None:
        """Train its first seed, unless an earlier trial had the same values."""
        twin = attempt.study.twin(attempt.trial.number, attempt.values)
        if twin is None:
            self.give(pool, attempt)
        elif twin.errors:
            attempt.study.finish(attempt.trial, twin.errors)
            self.end(attempt, f"as trial {twin.number}: {twin.error:.2f} %")
        else:
            attempt.study.prune(attempt.trial)
            self.end(attempt, f"as trial {twin.number}: pruned")

    def give(self, pool: Patient, attempt: Attempt) -> None:
        seed = self.sweep.seeds[len(attempt.errors)]
        try:
            cell = self.sweep.cell(attempt.search, attempt.trial.number, attempt.values, seed)
        except CertusError as e:
            self.fail(attempt, e)
            return
        self.under_way[cell.name] = attempt, cell
        pool.put(cell)

    def hear(self, pool: Patient, kind: str, name: str, value: Any) -> None:
        attempt, cell = self.under_way[name]
        if kind == "tick":
            if not attempt.over:
                self.on_tick(attempt, cell, value)
                self.judge(attempt, cell, value)
            return
        del self.under_way[name]
        if attempt.over:
            return
        if kind == "failed" and not isinstance(value, Diverged):
            self.fail(attempt, value)
            return
        attempt.errors[cell.config.seed] = DIVERGED if kind == "failed" else value["validation_error"]
        if len(attempt.errors) < len(self.sweep.seeds):
            self.give(pool, attempt)
            return
        attempt.study.finish(attempt.trial, attempt.errors)
        self.end(attempt, f"{fmean(attempt.errors.values()):.2f} %")

    def judge(self, attempt: Attempt, cell: Cell, tick: Tick) -> None:
        """Report the error so far, the mean over the seeds that are done and this one; and stop a hopeless trial."""
        number = len(attempt.errors) * tick.epochs + tick.epoch
        if tick.validation_error is None or number in attempt.reported or tick.step == tick.steps:
            return
        attempt.reported.add(number)
        error = fmean([*attempt.errors.values(), tick.validation_error])
        attempt.trial.report(error, number)
        if attempt.trial.should_prune():
            attempt.over = True
            attempt.study.prune(attempt.trial)
            put(cell.folder.path / PRUNED, "")
            self.end(attempt, f"pruned at {error:.2f} % after epoch {tick.epoch} of {tick.epochs}")

    def fail(self, attempt: Attempt, error: CertusError) -> None:
        attempt.study.fail(attempt.trial)
        self.failures[attempt.name] = error
        self.end(attempt, f"failed: {error}")
