"""certus sweep."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.progress import Progress, TaskID

from certus.cli.compare import ON, at_a_time, report_failures, typed_command
from certus.cli.flags import flag, many
from certus.cli.progress import Follow, bars, console, duration, fit
from certus.cli.settings import config_flags, option_flags
from certus.cli.tables import print_table
from certus.config import resolve
from certus.errors import Interrupted, UsageError
from certus.experiments.cells import Cell
from certus.experiments.pool import LOCAL
from certus.experiments.sweep import run_sweep
from certus.experiments.sweep_leader import Attempt
from certus.experiments.sweep_plan import plan_sweep
from certus.experiments.sweep_results import importance_text, unequal, write_sweep
from certus.methods.recipe import shown
from certus.training.loop import Tick

SEARCH = "search"
SHOWN = 10  # trials in the table on the screen


@dataclass(frozen=True)
class Options:
    """Search for the settings of a method that give the lowest validation error.

    Each --set is NAME=LOW..HIGH (a range), NAME=LOW..HIGH:log (on a logarithmic scale) or NAME=VALUE,VALUE,… for a
    setting of certus train or an option of the method. Trials that are behind are stopped early. Test images are never
    read. If it is stopped, the same command goes on from there; more trials may be added later.

    A first try: certus sweep --data digits --method mean-teacher --set weight=1..30:log --trials 20
    """

    set: tuple[str, ...] = flag("what is searched, such as weight=1..30:log ramp=20,80,160", (), group=SEARCH)
    methods: str | None = flag(
        "several methods' names, with commas between them; each has its own trials, of those settings that it has",
        group=SEARCH,
    )
    trials: int = flag("number of trials of each method", 20, group=SEARCH)
    minutes: float | None = flag("stop after about this long and save the trials under way", group=SEARCH)
    seeds: int = flag("seeds of each trial, whose error is their mean; counted from --seed", 1, group=SEARCH)
    pruner: str = flag("which trials are stopped early: median, hyperband or none", "median", group=SEARCH)
    epochs: float | None = flag("passes over the unlabelled images of each trial", None, "by data set", SEARCH)
    workers: int | None = flag("trials at the same time", None, "one per core", SEARCH)
    on: str = flag(ON, LOCAL, group=SEARCH)
    out: Path | None = flag("the folder of the sweep", None, "runs/sweep-…", SEARCH)
    tensorboard: Path | None = flag(
        "also write the curves of each trial for TensorBoard, below this folder", group=SEARCH
    )
    settings: Mapping[str, Any] = many(config_flags("threads"))
    method_options: Mapping[str, Any] = many(option_flags())


def run(options: Options) -> int:
    if options.workers is not None and options.workers < 1:
        raise UsageError(f"--workers must be at least 1, but is {options.workers}.")
    settings = dict(options.settings)
    names = [name for name in (options.methods or "").split(",") if name]
    method = settings.pop("method", None)
    if method and names:
        raise UsageError("Give only one of --method and --methods.")
    sweep = plan_sweep(
        names or [method or resolve(settings).method],
        options.set,
        options.trials,
        options.seeds,
        settings,
        options.method_options,
        options.epochs,
        options.pruner,
        options.out,
    )
    searched = ", ".join(axis.text for axis in {a: None for s in sweep.searches for a in s.space.axes})
    console.print(
        f"{options.trials} trials of {', '.join(s.method for s in sweep.searches)} on {sweep.searches[0].data.name}"
        f": {searched}; {at_a_time(options.on, options.workers)}, in {sweep.out}",
        soft_wrap=True,
    )
    with trial_progress() as progress:
        try:
            studies, failures = run_sweep(
                sweep,
                options.workers or 0,
                options.minutes,
                progress.tick,
                progress.end,
                options.tensorboard,
                options.on,
            )
        except Interrupted as e:
            raise Interrupted(f"{e} Go on with: {typed_command()}") from None
    found = write_sweep(sweep, studies, typed_command())
    for each in found:
        if each.best is None:
            print(f"{each.search.method}: no trial is finished ({each.counts}).")
            continue
        print_table(each.table(SHOWN))
        if each.importance:
            print(f"Importance: {importance_text(each.importance)}")
        print(f"Train with the best settings: certus train --config {each.run_file}")
    for warning in filter(None, (*(w for each in found for w in each.edges()), unequal(found))):
        print(f"certus: {warning}", file=sys.stderr)
    picture = f", picture: {sweep.out / 'sweep.png'}" if any(each.best for each in found) else ""
    print(f"Results: {sweep.out / 'results.md'}{picture}")
    return report_failures(failures)


@dataclass
class TrialProgress:
    """A line for each trial that is over; in a terminal also a bar for each that is under way."""

    bars: Progress | None = None
    tasks: dict[str, TaskID] = field(default_factory=dict)  # by the name of the trial
    follows: dict[str, Follow] = field(default_factory=dict)  # by the name of the run

    def tick(self, attempt: Attempt, cell: Cell, tick: Tick) -> None:
        if self.bars is None:
            return
        text = self.follows.setdefault(cell.name, Follow())(tick)
        if attempt.name not in self.tasks:
            self.tasks[attempt.name] = self.bars.add_task(attempt.name, text="", left=duration(None))
        self.bars.update(self.tasks[attempt.name], completed=tick.step, total=tick.steps, text=fit(text))

    def end(self, attempt: Attempt, outcome: str) -> None:
        if self.bars and attempt.name in self.tasks:
            self.bars.remove_task(self.tasks.pop(attempt.name))
        values = "  ".join(f"{name} {shown(value)}" for name, value in attempt.values.items())
        console.print(f"{attempt.name}  {values}  {outcome}", soft_wrap=True)


@contextmanager
def trial_progress() -> Iterator[TrialProgress]:
    if not console.is_terminal:
        yield TrialProgress()
        return
    with bars() as made:
        yield TrialProgress(made)
