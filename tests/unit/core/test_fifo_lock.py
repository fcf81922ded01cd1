"""One at a time, whoever comes, waits, and gives up."""

from __future__ import annotations

import asyncio

import pytest

from hub.core.relay.fifo_lock import FifoLock


async def inside(single: FifoLock, name: str, seen: list[str], turns: int = 1) -> None:
    if not single.enter():
        await single.turn()
    try:
        seen.append(f"{name} in")
        for _ in range(turns):
            await asyncio.sleep(0)
        seen.append(f"{name} out")
    finally:
        single.leave()


async def test_they_go_in_one_after_the_other_in_the_order_in_which_they_came() -> None:
    single, seen = FifoLock(), list[str]()
    await asyncio.gather(*(inside(single, name, seen, turns) for name, turns in (("a", 5), ("b", 1), ("c", 3))))
    assert seen == ["a in", "a out", "b in", "b out", "c in", "c out"]
    assert single.enter()


async def test_nobody_gets_in_between_who_leaves_and_whose_turn_it_is() -> None:
    single, seen = FifoLock(), list[str]()
    assert single.enter()
    waiting = asyncio.create_task(inside(single, "waiting", seen))
    await asyncio.sleep(0)
    single.leave()
    assert not single.enter()
    await waiting
    assert single.enter()


@pytest.mark.parametrize("at_the_last_moment", [False, True])
async def test_who_gives_up_passes_his_turn_on(at_the_last_moment: bool) -> None:
    single, seen = FifoLock(), list[str]()
    assert single.enter()
    gives_up, stays = (asyncio.create_task(inside(single, name, seen)) for name in ("gives up", "stays"))
    await asyncio.sleep(0)
    if at_the_last_moment:
        single.leave()
        gives_up.cancel()
    else:
        gives_up.cancel()
        await asyncio.sleep(0)
        single.leave()
    await asyncio.wait([gives_up, stays])
    assert gives_up.cancelled()
    assert seen == ["stays in", "stays out"]
    assert single.enter()
