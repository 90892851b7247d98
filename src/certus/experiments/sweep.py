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
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from certus.data import load
from certus.errors import CertusError, Interrupted
from certus.experiments.cells import Cell, check_folder
from certus.experiments.compare import ignore
from certus.experiments.pool import LOCAL, cores, open_pool
from certus.experiments.sweep_leader import PRUNED, Leader, OnEnd, OnTick
from certus.experiments.sweep_plan import Sweep, without_test
from certus.experiments.sweep_study import PATIENCE, Study, make_pruner, open_journal
from certus.training.build import build_on
from certus.training.lock import locked
from certus.training.loop import Listen, Tick, both, train
from certus.training.planning import check_length
from certus.training.run_folder import RunFolder
from certus.training.stopping import stop_signal
from certus.training.tensorboard import board, the_writer


class Pruned(CertusError):
    """This trial is no longer worth its time."""


def run_sweep(
    sweep: Sweep,
    workers: int = 0,
    minutes: float | None = None,
    on_tick: OnTick = ignore,
    on_end: OnEnd = ignore,
    tensorboard: Path | None = None,
    on: str = LOCAL,
) -> tuple[list[Study], dict[str, CertusError]]:
    """Do the trials that are left; the studies, and the trials that failed.

    After so many `minutes` the trials under way are saved. The same call goes on with them. `tensorboard`: the folder
    for the curves of each trial. `on`: where they are trained, as in `run_cells`.
    """
    if minutes is not None:
        check_length(None, None, minutes)
    if tensorboard is not None:
        the_writer()  # refused before anything is trained
    with locked(sweep.out, PATIENCE):
        studies = open_studies(sweep)
    left = sum(max(0, study.budget - len(study.tried())) for study in studies)
    if not left:
        return studies, {}
    size = min(workers or (cores() if on == LOCAL else 0), left)
    first = sweep.searches[0]
    device = first.config(first.space.corners()[0], sweep.seeds[0]).device
    pool = open_pool(on, size, sweep.out.absolute(), device, partial(train_trial, tensorboard=tensorboard))
    leader = Leader(sweep, studies, on_tick, on_end)
    late = threading.Event()
    with timer(minutes, late) as ends, stop_signal((signal.SIGINT, signal.SIGTERM)) as stopped:
        ends.append(stopped)
        try:
            with pool:
                leader.lead(pool, stopped)
        except Interrupted:
            if not late.is_set():
                raise
        finally:
            leader.let_go()
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


def train_trial(cell: Cell, listen: Listen, tensorboard: Path | None = None) -> dict[str, Any]:
    """The result of a trial at one seed, which has no test error; in a worker."""
    folder: RunFolder = cell.folder
    stop = folder.path / PRUNED

    def heed(tick: Tick) -> None:
        listen(tick)
        if stop.exists():
            raise Pruned(f"{folder.path} was pruned.")

    with locked(folder.path):
        check_folder(cell)
        if folder.finished():
            return folder.load_result()
        config = cell.config
        data = without_test(load(config.data, config.data_dir, config.size, config.fit))
        run = build_on(data, config, blueprint=folder.load_blueprint(), trained=folder.saved_step() > 0)
        with board(folder, tensorboard) as draw:
            return train(run, folder, both(draw, heed), observe=False)
