"""Every request gets its own answers in order, whatever else arrives, fails or is given up."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from certus.serving.batching import Batcher, Full

FOREVER = 1000.0  # seconds
ARRIVALS = st.lists(
    st.fixed_dictionaries(
        {
            "after": st.integers(0, 3),  # turns of the loop
            "count": st.integers(1, 5),
            "decoding": st.integers(0, 4),  # turns of the loop
            "fate": st.sampled_from(["whole"] * 6 + ["given up", "unreadable"]),
        }
    ),
    max_size=12,
)


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


class Asked:
    """A batcher whose answer to x is (x, number of the batch), and what it was asked."""

    def __init__(self, most: int, room: int, latency: float) -> None:
        self.batches: list[list[Any]] = []
        self.thread = ThreadPoolExecutor(1)
        self.batcher: Batcher[Any, Any] = Batcher(self.answer, self.thread, most, room, latency)

    def answer(self, pictures: Sequence[Any]) -> list[Any]:
        self.batches.append(list(pictures))
        return [("answer to", picture) for picture in pictures]

    async def __aenter__(self) -> Batcher[Any, Any]:
        self.worker = asyncio.create_task(self.batcher.run())
        return self.batcher

    async def __aexit__(self, *_: object) -> None:
        self.worker.cancel()
        await asyncio.gather(self.worker, return_exceptions=True)
        self.thread.shutdown()


@given(ARRIVALS, st.integers(1, 6), st.integers(5, 12), st.sampled_from([0.0, 0.0005]))
def test_every_request_gets_its_own_answers_in_order(
    arrivals: list[dict[str, Any]], most: int, room: int, latency: float
) -> None:
    async def one(batcher: Batcher[Any, Any], number: int, arrival: dict[str, Any]) -> str:
        async def decode() -> list[Any]:
            await turns(arrival["decoding"])
            if arrival["fate"] == "unreadable":
                raise ValueError
            return [(number, i) for i in range(arrival["count"])]

        try:
            found = await batcher.ask(arrival["count"], decode)
        except Full as full:
            return "full" if batcher.taken + arrival["count"] > room and 1 <= full.seconds <= 60 else "wrongly full"
        except ValueError:
            return "unreadable"
        assert found == [("answer to", (number, i)) for i in range(arrival["count"])]
        return "whole"

    async def everything() -> None:
        asked = Asked(most, room, latency)
        async with asked as batcher:
            tasks = []
            for number, arrival in enumerate(arrivals):
                await turns(arrival["after"])
                assert batcher.taken <= room
                tasks.append(asyncio.create_task(one(batcher, number, arrival)))
                if arrival["fate"] == "given up":
                    await turns(2)
                    tasks[-1].cancel()
            outcomes = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 30)
            for arrival, outcome in zip(arrivals, outcomes, strict=True):
                wanted = {"full", arrival["fate"]} | ({"whole"} if arrival["fate"] == "given up" else set())
                assert outcome in wanted or isinstance(outcome, asyncio.CancelledError), outcome
            assert (batcher.taken, batcher.coming) == (0, 0)
        pictures = [picture for batch in asked.batches for picture in batch]
        assert len(pictures) == len(set(pictures))
        assert all(0 < len(batch) <= most for batch in asked.batches)

    asyncio.run(everything())


def ready(*pictures: Any) -> Any:
    async def made() -> list[Any]:
        return list(pictures)

    return made


def run(coroutine: Any) -> Any:
    return asyncio.run(asyncio.wait_for(coroutine, 30))


def test_nobody_waits_for_company_that_is_not_coming() -> None:
    async def lonely() -> None:
        asked = Asked(8, 8, FOREVER)
        async with asked as batcher:
            assert await batcher.ask(1, ready("a")) == [("answer to", "a")]

    run(lonely())


def test_a_picture_waits_for_one_that_is_being_decoded() -> None:
    async def two() -> list[list[str]]:
        asked, decoded = Asked(8, 8, FOREVER), asyncio.Event()

        async def slowly() -> list[str]:
            await decoded.wait()
            return ["b"]

        async with asked as batcher:
            tasks = [asyncio.create_task(batcher.ask(1, made)) for made in (slowly, ready("a"))]
            await turns(20)
            assert not asked.batches
            decoded.set()
            await asyncio.gather(*tasks)
        return asked.batches

    assert run(two()) == [["a", "b"]]


def test_but_no_longer_than_the_latency() -> None:
    async def two() -> None:
        asked, never = Asked(8, 8, 0.01), asyncio.Event()

        async def stuck() -> list[str]:
            await never.wait()
            return ["b"]

        async with asked as batcher:
            task = asyncio.create_task(batcher.ask(1, stuck))
            await turns(2)
            assert await batcher.ask(1, ready("a")) == [("answer to", "a")]
            task.cancel()

    run(two())


def test_a_full_batch_does_not_wait() -> None:
    async def four() -> list[list[str]]:
        asked, never = Asked(2, 8, FOREVER), asyncio.Event()

        async def stuck() -> list[str]:
            await never.wait()
            return []

        async with asked as batcher:
            task = asyncio.create_task(batcher.ask(1, stuck))
            await turns(2)
            await batcher.ask(4, ready(*"abcd"))
            task.cancel()
        return asked.batches

    assert run(four()) == [["a", "b"], ["c", "d"]]


def test_what_arrives_while_the_model_works_is_answered_together() -> None:
    async def later() -> list[int]:
        asked, free = Asked(8, 8, 0.0), threading.Event()
        answer = asked.batcher.answer

        def slowly(pictures: Sequence[Any]) -> Sequence[Any]:
            free.wait(30)
            return answer(pictures)

        asked.batcher.answer = slowly
        async with asked as batcher:
            tasks = [asyncio.create_task(batcher.ask(1, ready(0)))]
            await turns(20)
            tasks += [asyncio.create_task(batcher.ask(1, ready(i))) for i in (1, 2, 3)]
            await turns(20)
            with pytest.raises(Full):
                await batcher.ask(5, ready(*range(5)))
            free.set()
            await asyncio.gather(*tasks)
        return [len(batch) for batch in asked.batches]

    assert run(later()) == [1, 3]


def test_a_batch_that_fails_is_an_error_of_its_requests_alone() -> None:
    async def failing() -> None:
        asked = Asked(8, 8, 0.0)
        answer = asked.batcher.answer
        asked.batcher.answer = lambda pictures: answer(pictures)[:-1] if "bad" in pictures else answer(pictures)
        async with asked as batcher:
            with pytest.raises(ValueError, match="zip"):
                await batcher.ask(2, ready("bad", "x"))
            assert await batcher.ask(1, ready("good")) == [("answer to", "good")]
            assert batcher.taken == 0

    run(failing())
