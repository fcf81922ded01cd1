"""What is not a call goes a few at a time in each turn of the loop."""

from __future__ import annotations

import asyncio

from hub.web.pace import Pace


async def test_a_few_go_at_once_and_a_crowd_goes_in_order_with_turns_between() -> None:
    pace, came = Pace(), list[int]()

    async def one(number: int) -> None:
        await pace.turn()
        came.append(number)

    crowd = [asyncio.create_task(one(number)) for number in range(100)]
    turns = 0
    while len(came) < len(crowd):
        before = len(came)
        await asyncio.sleep(0)
        turns += 1
        assert len(came) - before <= 8
    assert came == list(range(100))
    assert turns >= 100 / 8
    await asyncio.gather(*crowd)


async def test_who_no_longer_waits_holds_nobody_up() -> None:
    pace = Pace()
    crowd = [asyncio.create_task(pace.turn()) for _ in range(60)]
    await asyncio.sleep(0)
    for waiting in crowd[8:58]:
        waiting.cancel()
    await asyncio.wait_for(asyncio.gather(*crowd, return_exceptions=True), 1)
    assert not crowd[-1].cancelled()
    await asyncio.wait_for(pace.turn(), 1)
