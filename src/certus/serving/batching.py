"""Micro-batches: pictures of several requests are answered together, and each request gets its own answers in order.

A batch starts as soon as the model is free and one of these holds: it is full, no admitted picture is still being
decoded, or its first picture has waited for `latency`. So a lonely request does not wait for company that is not
coming. A picture waits for at most `latency`, and for the batches before it: room / most of them.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Generic, TypeVar

P = TypeVar("P")
A = TypeVar("A")
LONGEST = 60  # seconds; of the advice when to try again
SMOOTHING = 0.2  # the weight of the newest batch in the time that a picture takes


class Full(Exception):
    """There is no room for these pictures; `seconds` says when to try again."""

    def __init__(self, seconds: int) -> None:
        super().__init__(f"try again in {seconds} s")
        self.seconds = seconds


@dataclass(frozen=True, eq=False)
class Waiting(Generic[P, A]):
    picture: P
    answer: asyncio.Future[A]
    since: float


@dataclass(eq=False)
class Batcher(Generic[P, A]):
    """`answer` runs in `thread`, one batch at a time; `run` must be under way while `ask` is used."""

    answer: Callable[[Sequence[P]], Sequence[A]]
    thread: Executor
    most: int  # pictures in a batch
    room: int  # pictures that are admitted and not yet answered
    latency: float  # seconds
    listen: Callable[[int], None] = lambda _: None
    taken: int = 0  # places of the room
    coming: int = 0  # of these, pictures that are being decoded
    pace: float = 0.0  # seconds that a picture takes, lately
    waiting: deque[Waiting[P, A]] = field(default_factory=deque)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def ask(self, count: int, pictures: Callable[[], Awaitable[Sequence[P]]]) -> list[A]:
        """The answers to `count` pictures, which are made once there is room for them; `Full` if there is none."""
        if self.taken + count > self.room:
            raise Full(min(LONGEST, max(1, math.ceil(self.taken * self.pace))))
        self.taken += count
        try:
            self.coming += count
            try:
                ready = await pictures()
            finally:
                self.coming -= count
                self.changed.set()
            loop = asyncio.get_running_loop()
            mine = [Waiting[P, A](picture, loop.create_future(), loop.time()) for picture in ready]
            self.waiting.extend(mine)
            return list(await asyncio.gather(*(each.answer for each in mine)))  # cancelled with its caller
        finally:
            self.taken -= count

    async def run(self) -> None:
        """Answer batch after batch, until it is cancelled."""
        while True:
            await self.ready()
            if batch := self.next_batch():
                await self.answer_batch(batch)

    async def ready(self) -> None:
        """Wait until a batch may start."""
        loop = asyncio.get_running_loop()
        while True:
            self.changed.clear()
            left = None
            if self.waiting:
                left = self.waiting[0].since + self.latency - loop.time()
                if len(self.waiting) >= self.most or not self.coming or left <= 0:
                    return
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self.changed.wait()

    def next_batch(self) -> list[Waiting[P, A]]:
        """The first pictures whose requests still want an answer."""
        batch: list[Waiting[P, A]] = []
        while self.waiting and len(batch) < self.most:
            first = self.waiting.popleft()
            if not first.answer.done():
                batch.append(first)
        return batch

    async def answer_batch(self, batch: Sequence[Waiting[P, A]]) -> None:
        loop = asyncio.get_running_loop()
        start = loop.time()
        try:
            found = await loop.run_in_executor(self.thread, self.answer, [each.picture for each in batch])
            outcomes = list(zip(batch, found, strict=True))
        except Exception as error:
            for each in batch:
                if not each.answer.done():
                    each.answer.set_exception(error)
            return
        for each, answer in outcomes:
            if not each.answer.done():
                each.answer.set_result(answer)
        took = (loop.time() - start) / len(batch)
        self.pace = took if not self.pace else (1 - SMOOTHING) * self.pace + SMOOTHING * took
        self.listen(len(batch))
