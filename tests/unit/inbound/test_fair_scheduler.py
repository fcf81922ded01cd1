"""Requests other than A2A calls start a few per loop iteration."""

from __future__ import annotations

import asyncio
import time

from hub.core.shares.rotation import Rotation
from hub.inbound.middleware.fair_scheduler import FairScheduler


async def _starts(count: int, *, step_seconds: float = 0) -> list[int]:
    """How many start in each iteration of the loop."""
    scheduler, started = FairScheduler(Rotation("starts")), list[int]()

    async def one(number: int) -> None:
        await scheduler.turn("w")
        started.append(number)

    waiting = [asyncio.create_task(one(number)) for number in range(count)]
    starts: list[int] = []
    while len(started) < count:
        before = len(started)
        _work_for(step_seconds)
        await asyncio.sleep(0)
        starts.append(len(started) - before)
    assert started == list(range(count))
    await asyncio.gather(*waiting)
    return starts


def _work_for(seconds: float) -> None:
    """As calls with a step in the same iteration do."""
    over = time.monotonic() + seconds
    while time.monotonic() < over:
        pass


async def test_a_few_start_one_by_one_in_order_with_empty_iterations_between() -> None:
    starts = await _starts(30)
    assert max(starts) == 1
    assert starts.count(0) > 2 * starts.count(1)


async def test_one_starts_in_each_iteration_if_iterations_are_long() -> None:
    starts = await _starts(30, step_seconds=0.005)
    assert max(starts) == 1
    assert starts.count(0) <= 3


async def test_several_of_a_long_queue_start_in_one_iteration() -> None:
    starts = await _starts(5000)
    assert max(starts) < 100
    assert sum(1 for turn in starts if turn) < 1000


async def test_a_cancelled_request_does_not_delay_others() -> None:
    scheduler = FairScheduler(Rotation("starts"))
    requests = [asyncio.create_task(scheduler.turn("w")) for _ in range(60)]
    await asyncio.sleep(0)
    for waiting in requests[8:58]:
        waiting.cancel()
    await asyncio.wait_for(asyncio.gather(*requests, return_exceptions=True), 1)
    assert not requests[-1].cancelled()
    await asyncio.wait_for(scheduler.turn("w"), 1)
