"""What is not a call goes a few at a time in each turn of the loop."""

from __future__ import annotations

import asyncio
import time

from hub.inbound.middleware.fair_scheduler import FairScheduler


async def _let_in(crowd: int, *, turn_takes: float = 0) -> list[int]:
    """How many in each turn of the loop."""
    pace, came = FairScheduler(), list[int]()

    async def one(number: int) -> None:
        await pace.turn()
        came.append(number)

    waiting = [asyncio.create_task(one(number)) for number in range(crowd)]
    turns: list[int] = []
    while len(came) < crowd:
        before = len(came)
        _work_for(turn_takes)
        await asyncio.sleep(0)
        turns.append(len(came) - before)
    assert came == list(range(crowd))
    await asyncio.gather(*waiting)
    return turns


def _work_for(seconds: float) -> None:
    """As the calls do that have a step in that turn."""
    over = time.monotonic() + seconds
    while time.monotonic() < over:
        pass


async def test_a_few_go_one_by_one_in_order_and_with_turns_between_in_which_nobody_goes() -> None:
    turns = await _let_in(30)
    assert max(turns) == 1
    assert turns.count(0) > 2 * turns.count(1)


async def test_where_turns_are_long_one_goes_in_each() -> None:
    turns = await _let_in(30, turn_takes=0.005)
    assert max(turns) == 1
    assert turns.count(0) <= 3


async def test_of_many_more_go_so_that_the_last_does_not_wait_for_as_many_turns() -> None:
    turns = await _let_in(5000)
    assert max(turns) < 100
    assert sum(1 for turn in turns if turn) < 1000


async def test_who_no_longer_waits_holds_nobody_up() -> None:
    pace = FairScheduler()
    crowd = [asyncio.create_task(pace.turn()) for _ in range(60)]
    await asyncio.sleep(0)
    for waiting in crowd[8:58]:
        waiting.cancel()
    await asyncio.wait_for(asyncio.gather(*crowd, return_exceptions=True), 1)
    assert not crowd[-1].cancelled()
    await asyncio.wait_for(pace.turn(), 1)
