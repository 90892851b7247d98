"""Search for settings by the validation error: trials are proposed one after the other and trained side by side.

sweep = plan_sweep(["ft-ccl"], ["weight=1..30:log"], trials=40, settings={"data": "digits"}, out=Path("sweep"))
studies, failures = run_sweep(sweep, workers=2)

The test images are dropped as soon as the data are loaded. A trial is a run folder for each seed, trained by the one
loop; at the end of each epoch its validation error decides whether it goes on. Several methods take turns, so they have
the same number of trials at any time.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from certus.data import load
from certus.errors import CertusError, Interrupted
from certus.experiments.cells import Cell, check_folder
from certus.experiments.compare import cores, ignore
from certus.experiments.pool import Pool
from certus.experiments.sweep_plan import Search, Sweep, without_test
from certus.experiments.sweep_study import Study, make_pruner, open_journal
from certus.training.build import build_on
from certus.training.lock import Busy, locked
from certus.training.loop import Listen, Tick, both, train
from certus.training.planning import check_length
from certus.training.run import Diverged
from certus.training.run_folder import RunFolder
from certus.training.stopping import stop_signal
from certus.training.tensorboard import board, the_writer
from certus.writing import put

if TYPE_CHECKING:
    import optuna

DIVERGED = 100.0  # the error (%) of a run whose loss is no longer finite
PATIENCE = 30  # seconds for a worker that is still saving
PRUNED = "pruned"  # a file in the folder of a trial that is to stop


class Pruned(CertusError):
    """This trial is no longer worth its time."""


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
        return f"{self.search.method} trial {self.trial.number}"


OnTick = Callable[[Attempt, Cell, Tick], None]
OnEnd = Callable[[Attempt, str], None]  # with what became of it


def run_sweep(
    sweep: Sweep,
    workers: int = 0,
    minutes: float | None = None,
    on_tick: OnTick = ignore,
    on_end: OnEnd = ignore,
    tensorboard: Path | None = None,
) -> tuple[list[Study], dict[str, CertusError]]:
    """Do the trials that are left; the studies, and the trials that failed.

    After so many `minutes` the trials under way are saved. The same call goes on with them. `tensorboard`: the folder
    for the curves of each trial.
    """
    if minutes is not None:
        check_length(None, None, minutes)
    if tensorboard is not None:
        the_writer()  # refused before anything is trained
    with locked(sweep.out):
        studies = open_studies(sweep)
        left = sum(max(0, study.budget - len(study.tried())) for study in studies)
        if not left:
            return studies, {}
        leader = Leader(sweep, studies, on_tick, on_end)
        late = threading.Event()
        with timer(minutes, late) as ends, stop_signal((signal.SIGINT, signal.SIGTERM)) as stopped:
            ends.append(stopped)
            try:
                with Pool(min(workers or cores(), left), partial(train_trial, tensorboard=tensorboard)) as pool:
                    leader.lead(pool, stopped)
            except Interrupted:
                if not late.is_set():
                    raise
        return studies, leader.failures


@contextmanager
def timer(minutes: float | None, late: threading.Event) -> Iterator[list[threading.Event]]:
    """After so many minutes, set `late` and the events that are in the list then."""
    ends = [late]

    def ring() -> None:
        for event in ends:
            event.set()

    clock = threading.Timer(60 * (minutes or 0), ring)
    clock.daemon = True
    if minutes is not None:
        clock.start()
    try:
        yield ends
    finally:
        clock.cancel()


def open_studies(sweep: Sweep) -> list[Study]:
    storage = open_journal(sweep.out)
    studies = []
    for search in sweep.searches:
        pruner = make_pruner(sweep.pruner, search.epochs_of_a_run(sweep.seeds[0]) * len(sweep.seeds))
        specification = sweep.specification(search)
        studies.append(Study.open(storage, search.method, search.space, sweep.trials, pruner, specification))
    return studies


@dataclass
class Leader:
    """Proposes trials, gives their runs to the workers, and decides which go on."""

    sweep: Sweep
    studies: Sequence[Study]
    on_tick: OnTick
    on_end: OnEnd
    under_way: dict[str, tuple[Attempt, Cell]] = field(default_factory=dict)  # by the name of the cell
    failures: dict[str, CertusError] = field(default_factory=dict)

    def lead(self, pool: Pool, stopped: threading.Event) -> None:
        for search, study in zip(self.sweep.searches, self.studies, strict=True):
            for trial in study.under_way():
                self.start(pool, self.attempt(search, study, trial))
        while True:
            while len(self.under_way) < len(pool.workers) and (attempt := self.propose()):
                self.start(pool, attempt)
            if not self.under_way:
                return
            self.hear(pool, *pool.event(stopped))

    def propose(self) -> Attempt | None:
        """A new trial of the method that has had the fewest; None if all have had their number."""
        pairs = list(zip(self.sweep.searches, self.studies, strict=True))
        hungry = [(s.begun(), i) for i, (_, s) in enumerate(pairs) if s.begun() < s.budget]
        if not hungry:
            return None
        search, study = pairs[min(hungry)[1]]
        return self.attempt(search, study, study.ask(search.usual))

    def attempt(self, search: Search, study: Study, trial: optuna.Trial) -> Attempt:
        """The values of a trial that was killed are those that it had."""
        values = {axis.name: axis.suggest(trial) for axis in search.space.axes}
        known = study.study.get_trials(deepcopy=False)[trial.number]
        return Attempt(search, study, trial, values, set(known.intermediate_values))

    def start(self, pool: Pool, attempt: Attempt) -> None:
        """Train its first seed, unless an earlier trial had the same values."""
        twin = attempt.study.twin(attempt.trial.number, attempt.values)
        if twin is None:
            self.give(pool, attempt)
        elif twin.errors:
            attempt.study.finish(attempt.trial, twin.errors)
            self.on_end(attempt, f"as trial {twin.number}: {twin.error:.2f} %")
        else:
            attempt.study.prune(attempt.trial)
            self.on_end(attempt, f"as trial {twin.number}: pruned")

    def give(self, pool: Pool, attempt: Attempt) -> None:
        seed = self.sweep.seeds[len(attempt.errors)]
        try:
            cell = self.sweep.cell(attempt.search, attempt.trial.number, attempt.values, seed)
        except CertusError as e:
            self.fail(attempt, e)
            return
        self.under_way[cell.name] = attempt, cell
        pool.tasks.put(cell)

    def hear(self, pool: Pool, kind: str, name: str, value: Any) -> None:
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
        self.on_end(attempt, f"{fmean(attempt.errors.values()):.2f} %")

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
            self.on_end(attempt, f"pruned at {error:.2f} % after epoch {tick.epoch} of {tick.epochs}")

    def fail(self, attempt: Attempt, error: CertusError) -> None:
        if not isinstance(error, Busy):  # else it stays under way
            attempt.study.fail(attempt.trial)
        self.failures[attempt.name] = error
        self.on_end(attempt, f"failed: {error}")


@contextmanager
def patiently_locked(folder: Path) -> Iterator[None]:
    """A worker of a sweep that was killed still saves its run: wait for it."""
    with ExitStack() as held:
        for patience in reversed(range(PATIENCE)):
            try:
                held.enter_context(locked(folder))
                break
            except Busy:
                if not patience:
                    raise
                time.sleep(1)
        yield


def train_trial(cell: Cell, listen: Listen, tensorboard: Path | None = None) -> dict[str, Any]:
    """The result of a trial at one seed, which has no test error; in a worker."""
    folder: RunFolder = cell.folder
    stop = folder.path / PRUNED

    def heed(tick: Tick) -> None:
        listen(tick)
        if stop.exists():
            raise Pruned(f"{folder.path} was pruned.")

    with patiently_locked(folder.path):
        check_folder(cell)
        if folder.finished():
            return folder.load_result()
        config = cell.config
        data = without_test(load(config.data, config.data_dir, config.size, config.fit))
        run = build_on(data, config, blueprint=folder.load_blueprint(), trained=folder.saved_step() > 0)
        with board(folder, tensorboard) as draw:
            return train(run, folder, both(draw, heed), signals=(signal.SIGTERM,), observe=False)
