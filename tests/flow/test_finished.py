"""What has ended leaves nothing behind: no subscription of a call, no feed; old tasks are deleted without haste."""

from __future__ import annotations

import asyncio
import gc

from hub.core.tasks.feeds import ChangeQuery, TaskFeed
from hub.storage.common.task_changes import ChangeFollower
from rolecall.model.ids import START, TaskId
from tests.flow.conftest import CALLER, KEEP_ALIVE, System
from tests.helpers.scripted import status, task

HOUR = 3600.0


def count_of(kind: type) -> int:
    """How many objects of that type are in memory."""
    gc.collect()
    return sum(type(found) is kind for found in gc.get_objects())


async def test_an_answered_call_keeps_no_subscription(system: System) -> None:
    kind = type(system.engine.events.follow(TaskId("none"), after=START, idle=KEEP_ALIVE))
    await system.enrol("echo:a")
    before = count_of(kind)
    for _ in range(5):
        system.forwarder.plan("echo:a", task(), 0.01, status("completed"))
        await system.send()
    assert count_of(kind) == before


async def test_a_closed_feed_is_not_kept(system: System) -> None:
    kind = type(system.engine.registry.changes(CALLER.workspace, after=None, idle=KEEP_ALIVE))
    before = count_of(kind)
    for _ in range(5):
        with system.directory.changes(CALLER, after=None, idle=KEEP_ALIVE) as feed:
            assert list(await anext(feed)) == []
    del feed
    assert count_of(kind) == before


async def test_a_closed_feed_of_tasks_is_not_kept_and_one_that_nobody_enters_is_none(system: System) -> None:
    opened = system.hub.task_feeds.open
    unread = opened(CALLER, ChangeQuery(), idle=KEEP_ALIVE)
    assert count_of(ChangeFollower) == 0
    for _ in range(5):
        with opened(CALLER, ChangeQuery(), idle=KEEP_ALIVE) as feed:
            assert list(await anext(feed)) == []
    del feed, unread
    assert (count_of(TaskFeed), count_of(ChangeFollower)) == (0, 0)


async def test_deleting_old_tasks_pauses_as_long_as_each_piece_took(system: System) -> None:
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task("completed"))
    await system.send()
    await asyncio.sleep(25 * HOUR)
    piece, loop = system.engine.hold("tasks.forget"), asyncio.get_running_loop()
    began = loop.time()
    job = asyncio.create_task(system.hub.forget())
    await piece.reached.wait()
    await asyncio.sleep(3)
    piece.release()
    await job
    assert round(loop.time() - began, 2) == 6
    assert system.engine.done["tasks.forget"] == 2
    assert await system.rows() == []
