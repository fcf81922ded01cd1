"""The lock admits one task at a time, also when a waiter is cancelled."""

from __future__ import annotations

import asyncio

import pytest

from hub.core.relay.log_writer import FifoLock


async def inside(lock: FifoLock, name: str, seen: list[str], turns: int = 1) -> None:
    if not lock.enter():
        await lock.turn()
    try:
        seen.append(f"{name} in")
        for _ in range(turns):
            await asyncio.sleep(0)
        seen.append(f"{name} out")
    finally:
        lock.leave()


async def test_tasks_get_the_lock_in_the_order_of_arrival() -> None:
    lock, seen = FifoLock(), list[str]()
    await asyncio.gather(*(inside(lock, name, seen, turns) for name, turns in (("a", 5), ("b", 1), ("c", 3))))
    assert seen == ["a in", "a out", "b in", "b out", "c in", "c out"]
    assert lock.enter()


async def test_a_new_task_cannot_overtake_a_waiting_one() -> None:
    lock, seen = FifoLock(), list[str]()
    assert lock.enter()
    waiting = asyncio.create_task(inside(lock, "waiting", seen))
    await asyncio.sleep(0)
    lock.leave()
    assert not lock.enter()
    await waiting
    assert lock.enter()


@pytest.mark.parametrize("at_the_last_moment", [False, True])
async def test_a_cancelled_waiter_passes_the_lock_on(at_the_last_moment: bool) -> None:
    lock, seen = FifoLock(), list[str]()
    assert lock.enter()
    gives_up, waits = (asyncio.create_task(inside(lock, name, seen)) for name in ("gives up", "waits"))
    await asyncio.sleep(0)
    if at_the_last_moment:
        lock.leave()
        gives_up.cancel()
    else:
        gives_up.cancel()
        await asyncio.sleep(0)
        lock.leave()
    await asyncio.wait([gives_up, waits])
    assert gives_up.cancelled()
    assert seen == ["waits in", "waits out"]
    assert lock.enter()
