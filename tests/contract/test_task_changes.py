"""Changes of tasks: each once, in order, also where a reader lags, comes back, or the store was closed in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from hub.ports.state.engine import Engine
from hub.ports.state.task_changes import TaskFeed
from hub.storage.common import task_changes
from rolecall.model.a2a import TaskState
from rolecall.model.call import CallName
from rolecall.model.ids import Caller, TaskId, WorkerId
from rolecall.model.task import Branch, TaskChange
from tests.contract.conftest import Store
from tests.contract.words import (
    ANNA,
    BERT,
    DONE,
    LONG,
    OTHER_ANNA,
    SOON,
    a_row,
    a_turn,
    admitted,
    append,
    message,
    status,
    text,
)
from tests.helpers.clock import ManualClock

WORKING, ASKS = status(TaskState.WORKING), status(TaskState.INPUT_REQUIRED)


@asynccontextmanager
async def following(
    engine: Engine, caller: Caller = ANNA, *, after: int | None = 0, idle: timedelta = SOON
) -> AsyncIterator[TaskFeed]:
    feed = engine.task_changes.follow(caller, after=after, idle=idle)
    try:
        yield feed
    finally:
        feed.stop()


async def read(feed: TaskFeed) -> list[TaskChange]:
    """All that there is until nothing has come for its `idle`."""
    found: list[TaskChange] = []
    while True:
        behind = feed.is_behind
        batch = await feed.stored() if behind else await feed.live()
        found += batch
        if not batch and not behind and not feed.is_behind:
            return found


async def changes(engine: Engine, caller: Caller = ANNA, after: int | None = 0) -> list[TaskChange]:
    async with following(engine, caller, after=after) as feed:
        return await read(feed)


def outline(found: Sequence[TaskChange]) -> list[tuple[TaskId, str, str, int]]:
    return [(change.id, change.kind.value, change.state.value, change.at) for change in found]


def one_task(task: TaskId, *changes: tuple[str, str, int]) -> list[tuple[TaskId, str, str, int]]:
    return [(task, *change) for change in changes]


ADMITTED = ("admitted", "submitted", 0)


async def ended(engine: Engine, caller: Caller = ANNA, **members: Any) -> TaskId:
    task = await admitted(engine, caller, **members)
    await append(engine, task, DONE)
    return task


# --- what a change is


async def test_a_task_changes_when_it_is_admitted_when_its_state_does_and_when_it_ends(store: Store, engine: Engine) -> None:
    async with following(engine) as live:
        task = await admitted(engine)
        await append(engine, task, status(TaskState.SUBMITTED))
        await append(engine, task, WORKING, text(), after=1)
        await append(engine, task, text(), WORKING, after=3)
        await append(engine, task, ASKS, after=5)
        await append(engine, task, WORKING, text(), DONE, after=6)
        expected = one_task(
            task,
            ADMITTED,
            ("changed", "working", 2),
            ("changed", "input-required", 6),
            ("changed", "working", 7),
            ("ended", "completed", 9),
        )
        found = await read(live)
        assert outline(found) == expected
    assert await changes(await store.open_again(engine)) == found


async def test_another_question_of_a_paused_task_is_a_change(engine: Engine) -> None:
    task = await admitted(engine)
    await append(engine, task, ASKS)
    await append(engine, task, text(), ASKS, after=1)
    assert outline(await changes(engine))[1:] == one_task(
        task, ("changed", "input-required", 1), ("changed", "input-required", 3)
    )


async def test_a_task_that_is_answered_by_a_bare_message_is_gone(store: Store, engine: Engine) -> None:
    async with following(engine) as live:
        task = await admitted(engine)
        await append(engine, task, message())
        found = await read(live)
    assert outline(found) == one_task(task, ADMITTED, ("gone", "completed", 1))
    assert await changes(await store.open_again(engine)) == found


async def test_a_change_has_the_task_as_of_then(store: Store, engine: Engine, clock: ManualClock) -> None:
    child = Branch(TaskId("the parent"), TaskId("the root"), ("planner",))
    row = a_row(role="coder", worker=None, context="c", created=clock.wall())
    async with following(engine) as live:
        await engine.tasks.admit(row, a_turn(), branch=child)
        await engine.tasks.assign(row.id, WorkerId("coder", "x"), 1, "0.3")
        clock.advance(5)
        await append(engine, row.id, WORKING)
        clock.advance(5)
        await append(engine, row.id, DONE, after=1)
        found = await read(live)
    for change in found:
        assert (change.caller, change.role, change.context, change.created) == (ANNA, "coder", "c", row.created)
        assert change.parent == "the parent"
    assert [change.worker for change in found] == [None, *[WorkerId("coder", "x")] * 2]
    assert [round(change.updated - row.created, 3) for change in found] == [0, 5, 10]
    stored = await changes(await store.open_again(engine))
    assert [change.parent for change in stored] == ["the parent"] * 3
    assert stored[1:] == found[1:]


async def test_a_child_that_is_read_from_the_store_again_has_its_parent(store: Store, engine: Engine) -> None:
    row = a_row()
    await engine.tasks.admit(row, a_turn(), branch=Branch(TaskId("the parent"), TaskId("the root"), ("planner",)))
    engine = await store.open_again(engine)
    async with following(engine, after=None) as feed:
        await read(feed)
        await append(engine, row.id, WORKING)
        assert [change.parent for change in await feed.live()] == ["the parent"]


async def test_a_call_whose_name_is_taken_is_no_change(engine: Engine) -> None:
    name = CallName(b"1" * 16)
    assert await engine.tasks.admit(a_row(), a_turn(), names=[name])
    assert not await engine.tasks.admit(a_row(), a_turn(), names=[name], remembered=LONG)
    assert len(await changes(engine)) == 1


# --- order, and where a reader begins


async def test_changes_come_in_order_with_revisions_that_are_times(store: Store, engine: Engine, clock: ManualClock) -> None:
    """Also when the clock is set back, while the store is open or closed."""
    began = int(clock.wall() * 1e6)
    tasks = [await ended(engine)]
    for advance in (10, -60):
        clock.advance(advance)
        tasks.append(await ended(engine))
    engine = await store.open_again(engine)
    clock.advance(-3600)
    tasks.append(await ended(engine))
    found = await changes(engine)
    assert [change.id for change in found] == [task for task in tasks for _ in range(2)]
    assert [change.revision - began for change in found] == [0, 1, 10_000_000, *range(10_000_001, 10_000_006)]


async def test_a_reader_without_a_revision_begins_now_and_knows_where(store: Store, engine: Engine) -> None:
    async with following(engine, after=None) as feed:
        assert await read(feed) == []
        assert feed.revision == 0
    await ended(engine)
    newest = (await changes(engine))[-1].revision
    engine = await store.open_again(engine)
    async with following(engine, after=None) as feed:
        assert feed.revision is None
        assert await read(feed) == []
        assert feed.revision == newest
        task = await admitted(engine)
        assert outline(await read(feed)) == one_task(task, ADMITTED)
    assert outline(await changes(engine, after=newest)) == one_task(task, ADMITTED)


async def test_what_is_stored_but_was_not_read_before_a_restart_comes_after_it(store: Store, engine: Engine) -> None:
    tasks = [await ended(engine) for _ in range(3)]
    found = await changes(engine)
    engine = await store.open_again(engine)
    tasks.append(await ended(engine))
    for position, change in enumerate(found):
        rest = await changes(engine, after=change.revision)
        assert rest[:-2] == found[position + 1 :]
        assert outline(rest[-2:]) == one_task(tasks[-1], ADMITTED, ("ended", "completed", 1))


async def test_a_revision_of_another_store_is_as_none(engine: Engine, clock: ManualClock) -> None:
    await ended(engine)
    async with following(engine, after=int((clock.wall() + 3600) * 1e6)) as feed:
        assert await read(feed) == []
        task = await admitted(engine)
        assert outline(await read(feed)) == one_task(task, ADMITTED)


async def test_a_live_reader_is_woken_by_a_change_and_gets_nothing_when_none_comes(engine: Engine) -> None:
    async with following(engine, idle=LONG) as feed:
        assert list(await feed.stored()) == [] if feed.is_behind else True
        waiting = asyncio.ensure_future(feed.live())
        await asyncio.sleep(0)
        task = await admitted(engine)
        assert outline(await waiting) == one_task(task, ADMITTED)
    async with following(engine, after=None) as feed:
        await feed.stored()
        assert await read(feed) == []


async def test_a_stopped_reader_ends_also_while_it_waits(engine: Engine) -> None:
    async with following(engine, idle=LONG) as feed:
        waiting = asyncio.ensure_future(feed.live())
        await asyncio.sleep(0)
        feed.stop()
        assert list(await waiting) == []
        await admitted(engine)
        assert list(await feed.live()) == []


async def test_to_stop_twice_takes_nothing_from_another_reader(engine: Engine) -> None:
    async with following(engine) as one, following(engine) as other:
        await read(other)
        one.stop()
        one.stop()
        task = await admitted(engine)
        assert outline(await other.live()) == one_task(task, ADMITTED)


# --- who sees what


async def test_a_reader_gets_its_callers_changes_and_nobody_elses(store: Store, engine: Engine) -> None:
    callers = [ANNA, BERT, OTHER_ANNA]
    async with following(engine, BERT) as live:
        tasks = {caller: await ended(engine, caller) for caller in callers}
        assert {change.id for change in await read(live)} == {tasks[BERT]}
    engine = await store.open_again(engine)
    for caller in callers:
        assert {change.id for change in await changes(engine, caller)} == {tasks[caller]}


async def test_callers_with_the_same_hash_are_kept_apart(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("tasks.changes", "tasks.store", "events"):
        monkeypatch.setattr(f"hub.storage.sqlite.{module}.feed_of", lambda caller: 7)
    tasks = {caller: await ended(engine, caller) for caller in (ANNA, BERT)}
    for caller, task in tasks.items():
        assert {change.id for change in await changes(engine, caller)} == {task}


# --- readers that lag


async def test_a_reader_that_lags_gets_every_change_once_from_the_store(
    store: Store, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_changes, "RECENT", 7)
    monkeypatch.setattr("hub.storage.sqlite.tasks.changes.PAGE", 4)
    monkeypatch.setattr(task_changes, "PAGE", 4)
    tasks = [await ended(engine) for _ in range(3)]
    async with following(engine) as feed:
        found = list(await feed.stored())
        tasks += [await ended(engine) for _ in range(20)]
        assert feed.is_behind
        found += await feed.stored()
        tasks += [await ended(engine) for _ in range(5)]
        found += await read(feed)
        assert not feed.is_behind
        tasks += [await ended(engine) for _ in range(2)]
        found += await read(feed)
    assert outline(found) == [change for task in tasks for change in one_task(task, ADMITTED, ("ended", "completed", 1))]
    assert await changes(await store.open_again(engine)) == found


async def test_a_change_that_comes_while_a_page_is_read_comes_once(engine: Engine) -> None:
    tasks = [await ended(engine) for _ in range(5)]
    async with following(engine) as feed:
        page, more = await asyncio.gather(feed.stored(), asyncio.gather(*(ended(engine) for _ in range(50))))
        found = [*page, *await read(feed)]
    assert len(found) == len({change.revision for change in found}) == 2 * (len(tasks) + len(more))
    assert {change.id for change in found} == {*tasks, *more}
    assert found == sorted(found, key=lambda change: change.revision)


async def test_memory_holds_few_changes_and_the_busiest_gives_way(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_changes, "KEPT", 10)
    async with following(engine) as busy, following(engine, BERT) as quiet:
        await read(busy), await read(quiet)
        one_of_bert = await ended(engine, BERT)
        for _ in range(20):
            await ended(engine)
        assert busy.is_behind
        assert not quiet.is_behind
        assert outline(await quiet.live()) == one_task(one_of_bert, ADMITTED, ("ended", "completed", 1))
        assert len(await read(busy)) == 40


# --- what is deleted


async def test_deleted_tasks_are_in_no_feed(store: Store, engine: Engine, clock: ManualClock) -> None:
    async with following(engine) as live:
        old = await ended(engine)
        found = await read(live)
        clock.advance(100)
        recent, erased = await ended(engine), await ended(engine)
        while await engine.tasks.erase(erased):
            pass
        while await engine.tasks.forget(ended_for=timedelta(seconds=50), paused_for=timedelta(days=1)):
            pass
        assert {change.id for change in await read(live)} == {recent}
    assert {change.id for change in found} == {old}
    assert {change.id for change in await changes(engine)} == {recent}
    assert {change.id for change in await changes(await store.open_again(engine), after=found[0].revision)} == {recent}


async def test_a_task_is_in_no_feed_from_the_first_piece_of_its_erasure_on(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hub.storage.sqlite.tasks.deletion.FORGET_EVENTS", 2)
    task = await admitted(engine)
    await append(engine, task, WORKING, text(), text(), text(), DONE)
    if not await engine.tasks.erase(task):
        pytest.skip("has no pieces")
    assert await changes(engine) == []


# --- what no worker took


async def test_a_discarded_task_is_gone_for_those_who_saw_it(store: Store, engine: Engine) -> None:
    async with following(engine) as live:
        before = await ended(engine)
        task = await admitted(engine, role="coder", context="c")
        await engine.tasks.discard(task)
        found = await read(live)
    assert outline(found[2:]) == one_task(task, ADMITTED, ("gone", "submitted", 0))
    assert (found[3].role, found[3].context, found[3].worker) == ("coder", "c", found[2].worker)
    for again in (False, True):
        one_engine = await store.open_again(engine) if again else engine
        assert outline(await changes(one_engine)) == outline(found[:2])
        assert await changes(one_engine, after=found[1].revision) == []
        assert await changes(one_engine, after=found[2].revision) == found[3:]
        assert await changes(one_engine, after=found[3].revision) == []
    assert before == found[0].id


async def test_the_newest_change_may_be_of_a_discarded_task(engine: Engine) -> None:
    await engine.tasks.discard(await admitted(engine))
    newest = (await changes(engine, after=None), await ended(engine))
    assert newest[0] == []
    async with following(engine, after=None) as feed:
        await feed.stored()
        end = feed.revision
    await engine.tasks.discard(await admitted(engine))
    async with following(engine, after=None) as feed:
        await feed.stored()
        assert feed.revision is not None and end is not None
        assert feed.revision == end + 2


async def test_of_discarded_tasks_little_is_kept_and_not_for_long(
    store: Store, engine: Engine, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = [await admitted(engine) for _ in range(task_changes.DISCARDED + 5)]
    seen = (await changes(engine))[-1].revision
    for task in tasks:
        await engine.tasks.discard(task)
    kept = [change.id for change in await changes(engine, after=seen)]
    assert kept == tasks[5:]
    clock.advance(100)
    recent = await admitted(engine)
    seen = (await changes(engine, after=None), (await changes(engine))[-1].revision)[1]
    await engine.tasks.discard(recent)
    while await engine.tasks.forget(ended_for=timedelta(seconds=50), paused_for=timedelta(days=1)):
        pass
    assert [change.id for change in await changes(await store.open_again(engine), after=seen)] == [recent]


async def test_what_is_left_of_discarded_tasks_is_erased_by_caller_and_context(store: Store, engine: Engine) -> None:
    rows = [await admitted(engine, caller, context=context) for caller in (ANNA, BERT) for context in ("a", "b")]
    seen = {caller: (await changes(engine, caller))[-1].revision for caller in (ANNA, BERT)}
    for task in rows:
        await engine.tasks.discard(task)

    async def left(engine: Engine) -> list[TaskId]:
        return [change.id for caller, after in seen.items() for change in await changes(engine, caller, after)]

    assert await left(engine) == rows
    await engine.tasks.forget_discarded(ANNA, context="a")
    assert await left(engine) == rows[1:]
    await engine.tasks.forget_discarded(ANNA, context=None)
    assert await left(await store.open_again(engine)) == rows[2:]
