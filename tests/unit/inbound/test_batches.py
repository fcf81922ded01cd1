"""The entries of a batch: each counts for the limits of its caller, and their answers have one size together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from hub.core.shares.answers import AnswerShare
from hub.core.shares.rotation import Rotation
from hub.inbound.a2a.batches import Batches
from hub.inbound.middleware.call_turns import CallTurns
from hub.inbound.middleware.rate_limiter import RateLimiter
from rolecall.errors import ClientDisconnected, InvalidRequest, RouteError
from rolecall.model.ids import Caller

pytestmark = pytest.mark.virtual_time

CALLER = Caller("busy", "anna")
SIZE = 200_000
"""Of a batch's answer."""


class Served:
    """Batches whose entries are the sizes of their answers, and what was run of them."""

    def __init__(self, *, rate: int = 0, at_once: int = 0, unsent: int = 1_000_000) -> None:
        self.rate_limiter = RateLimiter(rate=rate, at_once=at_once, monotonic=lambda: 0.0)
        self.turns = CallTurns(Rotation("starts"))
        self.unsent = AnswerShare("bytes", "max_unsent", 2 * unsent, unsent)
        self.batches = Batches(self.rate_limiter, self.turns, self.unsent, entries=50, size=SIZE)
        self.started: list[int] = []
        self.at_once = self.most_at_once = 0
        self.held_to_the_end = 0

    async def run(self, entry: int) -> bytes:
        self.started.append(entry)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(1)
        finally:
            self.at_once -= 1
        return b"x" * entry

    async def answers(
        self, entries: Sequence[Any], caller: Caller | None = CALLER, run: Callable[[Any], Awaitable[bytes]] | None = None
    ) -> list[str]:
        """The sizes of the answers, or the errors' names."""

        def refuse(_: Any, error: RouteError) -> bytes:
            return type(error).__name__.encode()

        async with self.batches.answered(entries, "busy", caller, run or self.run, refuse) as body:
            self.held_to_the_end = self.unsent.use.used
            found = body[1:-1].split(b",")
        return [str(len(answer)) if answer.startswith(b"x") else answer.decode() for answer in found]


def count_of(answers: Sequence[str], kind: str) -> int:
    return sum(answer == kind for answer in answers)


async def test_each_entry_costs_what_a_request_costs_and_the_request_itself_is_the_first() -> None:
    served = Served(rate=10)
    served.rate_limiter.enter(CALLER)
    answers = await served.answers([1] * 50)
    served.rate_limiter.leave(CALLER)
    assert (len(served.started), count_of(answers, "1"), count_of(answers, "TooManyRequests")) == (20, 20, 30)
    assert count_of(answers[:10], "1") == 10


async def test_entries_under_way_count_as_the_callers_calls() -> None:
    served = Served(at_once=4)
    served.rate_limiter.enter(CALLER)
    answers = await served.answers([1] * 10)
    assert (count_of(answers, "1"), count_of(answers, "TooManyAtOnce")) == (4, 6)
    assert count_of(await served.answers([1] * 4), "1") == 4


async def test_the_local_caller_is_not_limited() -> None:
    served = Served(rate=1, at_once=1)
    assert count_of(await served.answers([1] * 50, None), "1") == 50


async def test_ten_entries_run_at_once() -> None:
    served = Served()
    await served.answers([1] * 50)
    assert served.most_at_once == 10


async def test_answers_come_in_the_order_of_the_entries() -> None:
    async def run(entry: int) -> bytes:
        await asyncio.sleep(1 / entry)
        return b"x" * entry

    sizes = list(range(1, 30))
    assert await Served().answers(sizes, run=run) == [str(size) for size in sizes]


async def test_when_an_answer_does_not_fit_the_calls_that_have_not_begun_are_not_made() -> None:
    served = Served()
    answers = await served.answers([90_000] * 5 + [1_000] * 45)
    begun = len(served.started)
    assert begun < 20  # ten at once, and those that followed the two that fit
    assert answers[begun:] == ["NotRun"] * (50 - begun)
    # What had begun is answered as far as it fits.
    assert sorted(answers[:begun]) == sorted([str(90_000)] * 2 + ["AnswerNotInBatch"] * 3 + [str(1_000)] * (begun - 5))


async def test_what_a_batch_has_collected_counts_for_the_workspace_until_it_is_sent() -> None:
    served = Served()
    await served.answers([30_000] * 6)
    assert served.held_to_the_end == 180_000
    assert served.unsent.use.used == 0


async def test_an_answer_that_the_workspace_may_not_hold_is_refused_and_smaller_ones_are_not() -> None:
    served = Served(unsent=150_000)
    answers = await served.answers([100_000, 90_000, 1_000])
    assert answers == [str(100_000), "AnswerNotSent", str(1_000)]
    assert served.unsent.use.used == 0


async def test_a_client_that_disconnects_ends_all_entries_and_frees_what_was_held() -> None:
    served = Served(at_once=20)
    served.rate_limiter.enter(CALLER)

    async def run(entry: int) -> bytes:
        if entry == 3:
            await asyncio.sleep(2)
            raise ClientDisconnected
        if entry == 4:
            await asyncio.sleep(3600)
        return await served.run(entry)

    began = asyncio.get_running_loop().time()
    with pytest.raises(ClientDisconnected):
        await served.answers([70_000] * 2 + [3, 4] + [1] * 46, run=run)
    assert asyncio.get_running_loop().time() - began < 3
    assert served.at_once == 0 and served.unsent.use.used == 0
    assert count_of(await served.answers([1] * 10), "1") == 10


async def test_batches_that_are_empty_or_too_long_are_refused_whole() -> None:
    served = Served()
    for entries in ([], [1] * 51):
        with pytest.raises(InvalidRequest):
            await served.answers(entries)
    assert served.started == []
