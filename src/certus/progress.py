"""Live progress on the error stream: bars in a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Column

from certus.train import Listen, Tick

console = Console(stderr=True, highlight=False)
QUIET = 10.0  # seconds between plain lines


def describe(tick: Tick, validation: float | None, rate: float) -> str:
    losses = "  ".join(f"{name} {value:.3f}" for name, value in tick.losses.items())
    error = f"  validation {validation:.1f} %" if validation is not None else ""
    return f"epoch {tick.epoch}/{tick.epochs}{error}  {rate:,.0f} images/s  {losses}"  # what a narrow screen cuts, last


def fit(text: str) -> str:
    """What is left of it beside title, bar and time on this screen."""
    room = max(20, console.width - 46)
    return text if len(text) <= room else text[: room - 1] + "…"


@dataclass
class Follow:
    """Turns one run's ticks into text: the newest validation error stays, the rate is smoothed."""

    validation: float | None = None
    rate: float = 0.0

    def __call__(self, tick: Tick) -> str:
        if tick.validation_error is not None:
            self.validation = tick.validation_error
        self.rate = 0.9 * self.rate + 0.1 * tick.images_per_second if self.rate else tick.images_per_second
        return describe(tick, self.validation, self.rate)


def bars() -> Progress:
    return Progress(
        TextColumn("{task.description}", table_column=Column(no_wrap=True, min_width=13)),
        BarColumn(bar_width=12, table_column=Column(min_width=8)),
        TimeRemainingColumn(compact=True, table_column=Column(no_wrap=True, min_width=5)),
        TextColumn("left  {task.fields[text]}"),
        console=console,
        refresh_per_second=4,
    )


@contextmanager
def decoding_progress() -> Iterator[Callable[[int, int], None]]:
    """For pictures that are read for the first time."""
    with Progress(
        TextColumn("reading pictures"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeRemainingColumn(compact=True),
        console=console,
        transient=True,
    ) as progress:
        task = progress.add_task("", total=None)
        yield lambda done, of: progress.update(task, completed=done, total=of)


@contextmanager
def run_progress(title: str) -> Iterator[Listen]:
    """For one run."""
    follow = Follow()
    if not console.is_terminal:
        last = start = time.monotonic()

        def plain(tick: Tick) -> None:
            nonlocal last
            text, now = follow(tick), time.monotonic()
            if tick.step == tick.steps or now - last >= QUIET:
                left = (now - start) / tick.step * (tick.steps - tick.step)
                console.print(f"{title}  {text}  {left:.0f} s left", soft_wrap=True)
                last = now

        yield plain
        return
    with bars() as progress:
        task = progress.add_task(title, total=None, text="")
        yield lambda tick: progress.update(task, completed=tick.step, total=tick.steps, text=fit(follow(tick)))


@dataclass
class ManyRuns:
    """For several runs at once: one bar over all, one for each that is under way."""

    total: int
    progress: Progress | None = None
    done: int = 0
    started: float = field(default_factory=time.monotonic)
    tasks: dict[str, TaskID] = field(default_factory=dict)
    follows: dict[str, Follow] = field(default_factory=dict)

    def tick(self, name: str, tick: Tick) -> None:
        text = self.follows.setdefault(name, Follow())(tick)
        if self.progress:
            if name not in self.tasks:
                self.tasks[name] = self.progress.add_task(name, total=tick.steps, text="")
            self.progress.update(self.tasks[name], completed=tick.step, text=fit(text))

    def finish(self, name: str, text: str) -> None:
        self.done += 1
        if self.progress:
            if name in self.tasks:
                self.progress.remove_task(self.tasks.pop(name))
            self.progress.update(self.tasks["all runs"], completed=self.done, text=f"{self.done}/{self.total}")
        console.print(f"{self.done}/{self.total}  {name}  {text}", soft_wrap=True)


@contextmanager
def many_progress(total: int) -> Iterator[ManyRuns]:
    if not console.is_terminal:
        yield ManyRuns(total)
        return
    with bars() as progress:
        many = ManyRuns(total, progress)
        many.tasks["all runs"] = progress.add_task("all runs", total=total, text=f"0/{total}")
        yield many
