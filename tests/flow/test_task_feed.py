"""Feeds of tasks: what a change says, filters, rests between batches, and how a feed ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from hub.core.tasks.feeds import ChangeQuery, TaskFeed, Words
from rolecall.errors import StoreUnavailable, WorkerBroke, WorkerUnreachable
from rolecall.model.a2a import TaskState
from rolecall.model.ids import Caller, TaskId
from rolecall.model.task import TaskChange
from tests.contract.words import a_row, a_turn
from tests.flow.conftest import CALLER, KEEP_ALIVE, System
from tests.flow.test_trees import child, working
from tests.helpers.scripted import chunk, message, status, task

FROM_THE_BEGINNING = ChangeQuery(after=0)
LONG = timedelta(seconds=60)


async def rest_of(feed: TaskFeed) -> list[TaskChange]:
    """All until nothing comes."""
    found: list[TaskChange] = []
    async for batch in feed:
        found += batch
        if not batch:
            break
    return found


async def changes(system: System, query: ChangeQuery = FROM_THE_BEGINNING, caller: Caller = CALLER) -> list[TaskChange]:
    with system.hub.task_feeds.open(caller, query, idle=KEEP_ALIVE) as feed:
        return await rest_of(feed)


def states(found: list[TaskChange]) -> list[tuple[str, str]]:
    return [(change.kind.value, change.state.value) for change in found]


async def answered(system: System, *steps: Any, role: str = "echo") -> dict[str, Any]:
    if not system.engine.registry.live(CALLER.workspace, role):
        await system.enrol(f"{role}:a")
    system.forwarder.plan(f"{role}:a", *steps)
    return await system.send(role=role)


async def admitted(system: System, caller: Caller = CALLER) -> None:
    await system.engine.tasks.admit(a_row(caller), a_turn())


# --- what a change says


async def test_a_call_is_admitted_works_and_ends(stored_system: System) -> None:
    system = stored_system
    done = await answered(system, task("working"), chunk("x"), status("completed", "all of it"))
    found = await changes(system)
    assert states(found) == [("admitted", "submitted"), ("changed", "working"), ("ended", "completed")]
    assert {(change.id, change.role, str(change.worker), change.context) for change in found} == {
        (done["id"], "echo", "echo:a", done["contextId"])
    }
    assert [await system.hub.task_feeds.words(change) for change in found] == [Words()] * 3


async def test_a_pause_has_its_question_and_an_end_without_success_its_reason(stored_system: System) -> None:
    system = stored_system
    await answered(system, task("working"), status("input-required", "Which\u2028one?"))
    await answered(system, task("working"), status("failed", "no ink"))
    await answered(system, task("working"), status("rejected"))
    await answered(system, task("working"), WorkerBroke("far:a", "cut"), role="far")
    paused, failed, rejected, lost = [change for change in await changes(system) if change.kind != "admitted"][1::2]
    words = system.hub.task_feeds.words
    assert await words(paused) == Words(question="Which\u2028one?")
    assert await words(failed) == Words(detail="no ink")
    assert await words(rejected) == Words(detail="")
    detail = (await words(lost)).detail
    assert await words(lost) == Words(reason="WORKER_LOST", detail=detail)
    assert detail is not None
    assert "What it had not sent is lost" in detail


async def test_a_large_question_is_read_in_part(system: System) -> None:
    await answered(system, task("working"), status("input-required", "x" * 300_000))
    assert await system.hub.task_feeds.words((await changes(system))[-1]) == Words(question="x" * 4_000)


async def test_a_worker_cannot_write_what_is_no_code_as_the_reason(system: System) -> None:
    failed = status("failed", "so")
    failed.document["metadata"] = {"rolecall": {"reason": "<script>"}}
    await answered(system, task("working"), failed)
    assert await system.hub.task_feeds.words((await changes(system))[-1]) == Words(detail="so")


async def test_the_words_of_a_task_that_is_deleted_meanwhile_are_empty(system: System) -> None:
    failed = await answered(system, task("working"), status("failed", "no ink"))
    change = (await changes(system))[-1]
    await system.hub.erasure.task(CALLER, TaskId(failed["id"]))
    assert await system.hub.task_feeds.words(change) == Words(detail="")


async def test_a_child_has_its_parent(stored_system: System) -> None:
    system = stored_system
    parent = await working(system, "planner")
    below = await child(system, parent, "coder")
    assert {(change.id, change.parent) for change in await changes(system)} == {(parent, None), (below, parent)}


async def test_a_bare_message_and_a_call_that_no_worker_takes_are_gone(stored_system: System) -> None:
    system = stored_system
    with system.hub.task_feeds.open(CALLER, FROM_THE_BEGINNING, idle=KEEP_ALIVE) as feed:
        await rest_of(feed)
        await answered(system, message("hello"))
        system.forwarder.plan("echo:a", WorkerUnreachable("echo:a", "http://w", "refused"))
        with pytest.raises(WorkerUnreachable):
            await system.send()
        found = await rest_of(feed)
    assert states(found) == [("admitted", "submitted"), ("gone", "completed"), ("admitted", "submitted"), ("gone", "submitted")]
    assert found[2].id == found[3].id
    assert await changes(system, ChangeQuery(after=found[2].revision)) == found[3:]


async def test_erasing_all_of_a_holder_forgets_the_calls_that_no_worker_took(stored_system: System) -> None:
    system = stored_system
    await admitted(system)
    seen = (await changes(system))[-1]
    await system.engine.tasks.discard(seen.id)
    assert states(await changes(system, ChangeQuery(after=seen.revision))) == [("gone", "submitted")]
    await system.hub.erasure.all_of(CALLER, "another context")
    assert len(await changes(system, ChangeQuery(after=seen.revision))) == 1
    await system.hub.erasure.all_of(CALLER, seen.context)
    assert await changes(system, ChangeQuery(after=seen.revision)) == []


# --- filters


async def test_a_feed_has_a_role_or_some_states_alone(stored_system: System) -> None:
    system = stored_system
    for role in ("echo", "coder"):
        await answered(system, task("working"), status("input-required"), role=role)
        await answered(system, task("working"), status("completed"), role=role)
    assert {change.role for change in await changes(system, ChangeQuery(0, "coder"))} == {"coder"}
    wanted = (TaskState.INPUT_REQUIRED, TaskState.COMPLETED)
    found = await changes(system, ChangeQuery(0, None, wanted))
    assert [change.state for change in found] == [*wanted, *wanted]
    assert [change.state for change in await changes(system, ChangeQuery(0, "echo", wanted[:1]))] == [*wanted[:1]]


async def test_a_reader_whom_no_change_concerns_gets_signs_of_life_and_the_newest_revision(system: System) -> None:
    with system.hub.task_feeds.open(CALLER, ChangeQuery(0, "nobody"), idle=timedelta(seconds=1)) as feed:
        assert await anext(feed) == []
        job = asyncio.create_task(_every(0.3, lambda: admitted(system)))
        began = asyncio.get_running_loop().time()
        for _ in range(3):
            assert await anext(feed) == []
        job.cancel()
        assert 2.5 < asyncio.get_running_loop().time() - began < 4.5
        assert feed.revision == (await changes(system))[-1].revision


async def _every(seconds: float, act: Callable[[], Awaitable[None]]) -> None:
    while True:
        await asyncio.sleep(seconds)
        await act()


# --- batches


async def test_many_changes_come_in_few_batches_and_a_single_one_at_once(system: System) -> None:
    loop = asyncio.get_running_loop()
    with system.hub.task_feeds.open(CALLER, ChangeQuery(), idle=LONG) as feed:
        assert await anext(feed) == []
        job = asyncio.create_task(_every(0.01, lambda: admitted(system)))
        first, *others = [len(await anext(feed)) for _ in range(10)]
        job.cancel()
    assert first == 1
    assert all(9 <= count <= 11 for count in others), others
    with system.hub.task_feeds.open(CALLER, ChangeQuery(), idle=LONG) as feed:
        assert await anext(feed) == []
        began = loop.time()
        job = asyncio.create_task(_every(5, lambda: admitted(system)))
        assert [len(await anext(feed)) for _ in range(2)] == [1, 1]
        job.cancel()
    assert loop.time() - began == pytest.approx(10, abs=0.01)


async def test_pages_of_feeds_are_read_two_at_a_time_and_workspaces_take_turns(system: System) -> None:
    read: list[str] = []

    async def look(workspace: str) -> None:
        await changes(system, caller=Caller(workspace, "anna"))
        read.append(workspace)

    for workspace in ("busy", "quiet"):
        await admitted(system, Caller(workspace, "anna"))
    holds = [system.engine.hold("feed.stored") for _ in range(2)]
    first = [asyncio.create_task(look("busy")) for _ in range(5)]
    for hold in holds:
        await hold.reached.wait()
    quiet = asyncio.create_task(look("quiet"))
    await asyncio.sleep(0)
    assert len(system.engine.arguments("feed.stored")) == 2
    holds[0].release()
    await quiet
    assert read.index("quiet") <= 2
    holds[1].release()
    await asyncio.gather(*first)


# --- how it ends, and goes on


async def test_feeds_end_when_the_hub_drains_and_new_ones_end_at_once(system: System) -> None:
    opened = system.hub.task_feeds.open
    await admitted(system)
    with opened(CALLER, ChangeQuery(), idle=LONG) as waiting, opened(CALLER, FROM_THE_BEGINNING, idle=LONG) as resting:
        assert (len(await anext(waiting)), len(await anext(resting))) == (0, 1)
        waits = [asyncio.create_task(anext(feed)) for feed in (waiting, resting)]
        await asyncio.sleep(0.05)
        began = asyncio.get_running_loop().time()
        system.hub.drain()
        for end in await asyncio.gather(*waits, return_exceptions=True):
            assert isinstance(end, StopAsyncIteration)
        assert asyncio.get_running_loop().time() - began <= 0.1
    with opened(CALLER, FROM_THE_BEGINNING, idle=LONG) as late:
        assert [batch async for batch in late] == []


async def test_a_feed_ends_when_the_store_cannot_be_read(system: System) -> None:
    await admitted(system)
    system.engine.fail("feed.stored", StoreUnavailable())
    with system.hub.task_feeds.open(CALLER, FROM_THE_BEGINNING, idle=LONG) as feed:
        assert [batch async for batch in feed] in ([], [[]])


async def test_a_reader_gets_every_change_once_and_in_order_over_kills_of_the_hub(stored_system: System) -> None:
    system, found, after, begun = stored_system, list[TaskChange](), 0, list[str]()
    await system.enrol("echo:a", replays=True)
    for number in range(6):
        with system.hub.task_feeds.open(CALLER, ChangeQuery(after), idle=KEEP_ALIVE) as feed:
            for _ in range(3):
                system.forwarder.plan("echo:a", task("working"), status("completed" if number % 2 else "input-required"))
                begun.append((await system.send())["id"])
            found += await rest_of(feed) if number % 2 else await anext(feed)
            system.forwarder.plan("echo:a", task("working"), status("completed"))
            begun.append((await system.send())["id"])  # this reader is gone before it has all
        after = found[-1].revision
        await system.restart()
        await system.enrol("echo:a", replays=True)
    found += await changes(system, ChangeQuery(after))
    assert len({change.revision for change in found}) == len(found) == 3 * len(begun)
    assert found == sorted(found, key=lambda change: change.revision)
    assert list(dict.fromkeys(change.id for change in found)) == begun
    for name in begun:
        assert [change.kind.value for change in found if change.id == name][:2] == ["admitted", "changed"]
