"""Live progress on stderr: bars in a terminal, otherwise a plain line every few seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Column

from certus.cli.screen import screen
from certus.training.loop import Listen, Tick

console = screen(stderr=True, highlight=False)
ONE_RUN_SECONDS, MANY_RUNS_SECONDS = 10.0, 60.0  # between two plain lines


def describe(tick: Tick, validation: float | None, rate: float) -> str:
    """The losses come last, because a narrow screen cuts the end off."""
    losses = "  ".join(f"{name} {value:.3f}" for name, value in tick.losses.items())
    error = f"  validation {validation:.1f} %" if validation is not None else ""
    return f"epoch {tick.epoch}/{tick.epochs}{error}  {rate:,.0f} images/s  {losses}"


def fit(text: str) -> str:
    """Cut the text to the space that title, bar and time leave on the screen."""
    room = max(20, console.width - 46)
    return text if len(text) <= room else text[: room - 1] + "…"


@dataclass
class Follow:
    """Turns the ticks of one run into text, with the newest validation error and a smoothed rate."""

    validation: float | None = None
    rate: float = 0.0

    def __call__(self, tick: Tick) -> str:
        if tick.validation_error is not None:
            self.validation = tick.validation_error
        self.rate = 0.9 * self.rate + 0.1 * tick.images_per_second if self.rate else tick.images_per_second
        return describe(tick, self.validation, self.rate)


def bars() -> Progress:
    return Progress(
        TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, min_width=13)),
        BarColumn(bar_width=12, table_column=Column(min_width=8)),
        TextColumn("{task.fields[left]} left", table_column=Column(no_wrap=True, min_width=5)),
        TextColumn("{task.fields[text]}", markup=False),
        console=console,
        refresh_per_second=4,
    )


@contextmanager
def counting(what: str) -> Iterator[Callable[[int, int], None]]:
    """Progress of something that is done picture by picture; nothing is shown before the first."""
    progress = Progress(
        TextColumn(what),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeRemainingColumn(compact=True),
        console=console,
        transient=True,
    )
    task = progress.add_task("", total=None)

    def listen(done: int, of: int) -> None:
        progress.start()
        progress.update(task, completed=done, total=of)

    try:
        yield listen
    finally:
        if progress.live.is_started:
            progress.stop()


@contextmanager
def trying() -> Iterator[Callable[[str], None]]:
    """What is being tried, for as long as it is."""
    with console.status("") as status:
        yield lambda what: status.update(f"{what} …") if console.is_terminal else console.print(f"{what} …")


@contextmanager
def run_progress(title: str) -> Iterator[Listen]:
    """Progress of one run."""
    follow = Follow()
    last = time.monotonic()
    first: tuple[float, int] | None = None  # time and step of the first tick; the first step says little

    def left(tick: Tick) -> str:
        nonlocal first
        first = first or (time.monotonic(), tick.step)
        start, before = first
        if tick.step == before:
            return duration(None)
        return duration((time.monotonic() - start) / (tick.step - before) * (tick.steps - tick.step))

    if not console.is_terminal:

        def plain(tick: Tick) -> None:
            nonlocal last
            text, now, rest = follow(tick), time.monotonic(), left(tick)
            if tick.step == tick.steps or now - last >= ONE_RUN_SECONDS:
                console.print(f"{title}  {text}  {rest} left", soft_wrap=True)
                last = now

        yield plain
        return
    with bars() as progress:
        task = progress.add_task(title, total=None, text="", left=duration(None))

        def show(tick: Tick) -> None:
            rest = left(tick)
            progress.update(task, completed=tick.step, total=tick.steps, text=fit(follow(tick)), left=rest)

        yield show


@dataclass
class Workload:
    """Estimates how long several runs still take, from the seconds per step of each kind of run so far."""

    runs: Mapping[str, tuple[str, int]]  # name -> its kind, its steps
    workers: int
    done: dict[str, int] = field(default_factory=dict)  # name -> steps done, for runs that have begun
    first: dict[str, tuple[float, int]] = field(default_factory=dict)  # name -> time and step of its first tick
    taken: dict[str, tuple[float, int]] = field(default_factory=dict)  # name -> seconds, and steps done in them

    def seen(self, name: str, step: int, now: float) -> None:
        start, before = self.first.setdefault(name, (now, step))
        self.done[name] = step
        if step > before:
            self.taken[name] = (now - start, step - before)

    def finished(self, name: str, seconds: float | None) -> None:
        steps = self.done[name] = self.runs[name][1]
        if seconds is not None:
            self.taken[name] = (seconds, steps)

    def pace(self, kind: str) -> float | None:
        """Seconds per step of this kind of run; if none is known yet, of all kinds."""
        for wanted in ({kind}, {kind for kind, _ in self.runs.values()}):
            known = [taken for name, taken in self.taken.items() if self.runs[name][0] in wanted]
            if known:
                return sum(seconds for seconds, _ in known) / sum(steps for _, steps in known)
        return None

    def left_of(self, name: str) -> float | None:
        kind, steps = self.runs[name]
        pace = self.pace(kind)
        return None if pace is None else pace * (steps - self.done.get(name, 0))

    def left(self) -> float | None:
        """Seconds until all runs are done: the workers share them, but no run is shared by two."""
        each = [left for name in self.runs if (left := self.left_of(name)) is not None]
        running = sum(steps < self.runs[name][1] for name, steps in self.done.items())  # a cluster may have more
        return max(sum(each) / max(1, self.workers, running), *each) if each else None


def duration(seconds: float | None) -> str:
    """h:mm:ss."""
    if seconds is None:
        return "-:--"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


@dataclass
class ManyRuns:
    """Progress of several runs at once: one bar for all, and one for each that is running."""

    work: Workload
    progress: Progress | None = None
    ended: int = 0  # runs that are finished or have failed
    last: float = field(default_factory=time.monotonic)  # when a plain line was printed
    tasks: dict[str, TaskID] = field(default_factory=dict)
    follows: dict[str, Follow] = field(default_factory=dict)

    def summary(self) -> str:
        return f"{self.ended}/{len(self.work.runs)} runs"

    def tick(self, name: str, tick: Tick) -> None:
        now = time.monotonic()
        text = self.follows.setdefault(name, Follow())(tick)
        self.work.seen(name, tick.step, now)
        if self.progress:
            if name not in self.tasks:
                self.tasks[name] = self.progress.add_task(name, total=tick.steps, text="", left="")
            left = duration(self.work.left_of(name))
            self.progress.update(self.tasks[name], completed=tick.step, text=fit(text), left=left)
            self.refresh()
        elif now - self.last >= MANY_RUNS_SECONDS:
            self.last = now
            console.print(f"{self.summary()}  {name}  {text}  {duration(self.work.left())} left", soft_wrap=True)

    def finish(self, name: str, text: str, seconds: float | None = None) -> None:
        self.ended += 1
        self.work.finished(name, seconds)
        if self.progress:
            if name in self.tasks:
                self.progress.remove_task(self.tasks.pop(name))
            self.refresh()
        left = self.work.left()
        more = f"  {duration(left)} left" if left else ""
        console.print(f"{self.ended}/{len(self.work.runs)}  {name}  {text}{more}", soft_wrap=True)

    def refresh(self) -> None:
        assert self.progress
        steps = sum(self.work.done.values())
        left = duration(self.work.left())
        self.progress.update(self.tasks["all runs"], completed=steps, text=self.summary(), left=left)


@contextmanager
def many_progress(runs: Mapping[str, tuple[str, int]], workers: int) -> Iterator[ManyRuns]:
    """`runs`: name -> its kind (the steps of a kind take equally long) and its number of steps."""
    work = Workload(runs, workers)
    if not console.is_terminal:
        yield ManyRuns(work)
        return
    with bars() as progress:
        many = ManyRuns(work, progress)
        steps = sum(steps for _, steps in runs.values())
        many.tasks["all runs"] = progress.add_task("all runs", total=steps, text=many.summary(), left=duration(None))
        yield many
