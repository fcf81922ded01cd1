"""What is not a call goes a few at a time in each turn of the loop."""

from __future__ import annotations

import asyncio

from hub.web.pace import Pace


async def _let_in(crowd: int) -> list[int]:
    """How many in each turn of the loop."""
    pace, came = Pace(), list[int]()

    async def one(number: int) -> None:
        await pace.turn()
        came.append(number)

    waiting = [asyncio.create_task(one(number)) for number in range(crowd)]
    turns: list[int] = []
    while len(came) < crowd:
        before = len(came)
        await asyncio.sleep(0)
        turns.append(len(came) - before)
    assert came == list(range(crowd))
    await asyncio.gather(*waiting)
    return turns


async def test_a_few_go_one_in_a_turn_and_in_order() -> None:
    assert max(await _let_in(30)) == 1


async def test_of_many_more_go_so_that_the_last_does_not_wait_for_as_many_turns() -> None:
    turns = await _let_in(5000)
    assert max(turns) < 100
    assert len(turns) < 1000


async def test_who_no_longer_waits_holds_nobody_up() -> None:
    pace = Pace()
    crowd = [asyncio.create_task(pace.turn()) for _ in range(60)]
    await asyncio.sleep(0)
    for waiting in crowd[8:58]:
        waiting.cancel()
    await asyncio.wait_for(asyncio.gather(*crowd, return_exceptions=True), 1)
    assert not crowd[-1].cancelled()
    await asyncio.wait_for(pace.turn(), 1)
