"""What the SQLite engine holds in memory: bounded, and never older than the store."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from hub.ports.event_log import LogEntry
from hub.storage.common import leases
from hub.storage.common.cached_task import CachedTask, outcome
from hub.storage.common.log_tail import TAIL_BYTES, TAIL_EVENTS
from hub.storage.sqlite import events as events_module
from hub.storage.sqlite import registry as registry_module
from hub.storage.sqlite.cache import Cache
from hub.storage.sqlite.engine import SqliteEngine
from hub.storage.sqlite.tasks import FORGET_EVENTS
from rolecall.errors import TaskNotFound
from rolecall.model.a2a import Logged, TaskState
from rolecall.model.ids import START, Cursor, TaskId, WorkerId
from tests.contract.words import (
    ANNA,
    DONE,
    LONG,
    SOON,
    a_row,
    a_turn,
    admitted,
    append,
    collected,
    enrolled,
    grown,
    proof,
    status,
    text,
)
from tests.helpers.clock import MovableClock


def held(events: int = 0, size: int = 100) -> CachedTask:
    held = CachedTask(a_row(), [a_turn()])
    held.extend([Logged(Cursor(at), text("x" * size)) for at in range(1, events + 1)])
    return held


async def left_memory(engine: SqliteEngine) -> TaskId:
    """A task that is only in the store."""
    cache = engine._tasks._cache
    cache._open._most = 1
    task = await admitted(engine)
    await admitted(engine)
    gc.collect()
    assert cache.find(task) is None
    return task


class Loads:
    """So many loads of a task are held up once they have read what is stored."""

    def __init__(self, engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch, *, most: int) -> None:
        self._read, self._left = engine._reader.rows, most
        self._have_read, self._go = asyncio.Event(), asyncio.Event()
        monkeypatch.setattr(engine._reader, "rows", self._rows)

    async def _rows(self, sql: str, parameters: Any = ()) -> list[tuple[Any, ...]]:
        found = await self._read(sql, parameters)
        if sql == events_module._HELD and self._left:
            self._left -= 1
            if not self._left:
                self._have_read.set()
            await self._go.wait()
        return found

    async def all_read(self) -> None:
        await asyncio.wait_for(self._have_read.wait(), 5)

    def go_on(self) -> None:
        self._go.set()


@pytest.mark.parametrize(("events", "size"), [(3 * TAIL_EVENTS, 1), (100, TAIL_BYTES // 10)])
def test_tail_is_bounded_by_events_and_by_bytes(events: int, size: int) -> None:
    tail = held(events, size)
    kept = tail.since(Cursor(0))
    assert len(kept) <= TAIL_EVENTS
    assert sum(len(logged.event.body) for logged in kept) == tail.size <= TAIL_BYTES
    assert kept[-1].cursor == tail.end == events
    assert tail.covers(Cursor(events - len(kept)))
    assert not tail.covers(Cursor(events - len(kept) - 1))


def test_append_that_was_loaded_already_takes_the_row_nowhere() -> None:
    loaded = CachedTask(a_row(at=Cursor(6), state=TaskState.COMPLETED, position="b.6"), None)
    older = LogEntry([status(TaskState.WORKING)], "b.5")
    loaded.advance(older, [Logged(Cursor(5), older.events[0])], outcome(older.events), updated=0.0)
    row = loaded.row
    assert (row.at, row.state, row.position) == (6, TaskState.COMPLETED, "b.6")
    assert loaded.position == "b.6"
    loaded.advance(LogEntry([text()]), [Logged(Cursor(7), text())], outcome([text()]), updated=1.0)
    assert (loaded.row.at, loaded.row.state) == (7, TaskState.COMPLETED)


def test_cache_lets_the_oldest_go_when_there_are_too_many() -> None:
    cache = Cache(open_tasks=2)
    for name in ("a", "b", "c"):
        cache.keep(TaskId(name), held())
    gc.collect()
    assert [cache.find(TaskId(name)) is not None for name in ("a", "b", "c")] == [False, True, True]


def test_cache_forgets_the_weight_of_what_it_lets_go() -> None:
    cache = Cache(open_tasks=3, size=20_000)
    names = [TaskId(str(at)) for at in range(100)]
    for name in names:
        cache.keep(name, held())
    last = held()
    for _ in range(100):
        cache.keep(names[-1], last)
    gc.collect()
    assert [name for name in names if cache.find(name) is not None] == names[-3:]


def test_cache_lets_contents_go_when_they_weigh_too_much_and_keeps_the_place_of_who_is_followed() -> None:
    cache = Cache(size=20_000)
    followed = held(50, 150)
    cache.keep(TaskId("followed"), followed)
    cache.keep(TaskId("other"), held(50, 300))
    assert cache.find(TaskId("followed")) is followed
    assert (followed.size, followed.turns, followed.end) == (0, None, 50)
    assert not followed.covers(Cursor(49))


def test_cache_keeps_a_few_of_those_that_have_ended_and_they_push_out_nobody_who_is_at_work() -> None:
    cache = Cache(open_tasks=2, ended=2)
    cache.keep(TaskId("at work"), held())
    for name in ("a", "b", "c"):
        task = held()
        cache.keep(TaskId(name), task)
        task.close()
        cache.keep(TaskId(name), task)
    del task
    gc.collect()
    assert [cache.find(TaskId(name)) is not None for name in ("at work", "a", "b", "c")] == [True, False, True, True]


def test_cache_finds_whoever_is_followed_also_after_its_end() -> None:
    cache = Cache(ended=1)
    followed = held()
    cache.keep(TaskId("followed"), followed)
    followed.close()
    cache.keep(TaskId("followed"), followed)
    cache.keep(TaskId("other"), CachedTask(a_row(state=TaskState.COMPLETED), None))
    assert cache.find(TaskId("followed")) is followed


async def test_writing_to_a_task_that_left_memory_still_reaches_its_reader(engine: SqliteEngine) -> None:
    cache = engine._tasks._cache
    cache._open._most = 1
    task = await admitted(engine)
    expected = await grown(engine, task, 5)
    reader = engine.events.follow(task, after=START, idle=LONG)
    await admitted(engine)
    assert list(await anext(reader)) == expected
    waiting = asyncio.ensure_future(anext(reader))
    await asyncio.sleep(0)
    await append(engine, task, text("6"), after=5)
    assert [logged.cursor for logged in await waiting] == [6]
    await admitted(engine)
    assert [turn.message_id for turn in await engine.tasks.turns(task)] == ["m-1"]
    await append(engine, task, DONE, after=6)
    assert [logged.cursor for logged in await collected(reader)] == [7]


async def test_task_written_while_it_is_loaded_is_loaded_again(engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    task = await left_memory(engine)
    read = engine._reader.rows
    writes = [append(engine, task, text("1"))]

    async def slow(sql: str, parameters: Any = ()) -> list[tuple[Any, ...]]:
        found = await read(sql, parameters)
        while writes:
            await writes.pop()
        return found

    monkeypatch.setattr(engine._reader, "rows", slow)
    reader = engine.events.follow(task, after=START, idle=SOON)
    assert [logged.cursor for logged in await anext(reader)] == [1]
    await append(engine, task, text("2"), after=1)
    assert [logged.cursor for logged in await anext(reader)] == [2]


async def test_each_of_two_readers_that_load_a_task_while_it_is_written_hears_its_end(
    engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, loads = await left_memory(engine), Loads(engine, monkeypatch, most=2)
    readers = [asyncio.ensure_future(collected(engine.events.follow(task, after=START, idle=LONG))) for _ in range(2)]
    await loads.all_read()
    await append(engine, task, DONE)
    loads.go_on()
    heard = await asyncio.wait_for(asyncio.gather(*readers), 5)
    assert [[logged.cursor for logged in events] for events in heard] == [[1], [1]]
    assert (await engine.tasks.get(ANNA, task)).ended


async def test_loader_that_gave_up_leaves_the_others_to_be_told(engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    task, loads = await left_memory(engine), Loads(engine, monkeypatch, most=2)
    gives_up, stays = [asyncio.ensure_future(engine.events.tail(task)) for _ in range(2)]
    await loads.all_read()
    gives_up.cancel()
    await asyncio.wait([gives_up])
    await append(engine, task, DONE)
    loads.go_on()
    tail = await stays
    assert (tail.end, tail.closed) == (1, True)
    assert not engine._tasks._cache._loading


async def test_load_that_is_older_than_a_task_that_came_and_went_is_not_kept(
    engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, loads = await left_memory(engine), Loads(engine, monkeypatch, most=1)
    loading = asyncio.ensure_future(engine.events.tail(task))
    await loads.all_read()
    await engine.events.tail(task)
    engine._tasks._cache._ended._most = 0
    await append(engine, task, DONE)
    await admitted(engine)
    gc.collect()
    assert engine._tasks._cache.find(task) is None
    loads.go_on()
    tail = await loading
    assert (tail.end, tail.closed) == (1, True)


async def test_task_discarded_while_it_is_loaded_is_not_kept(engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    task, loads = await left_memory(engine), Loads(engine, monkeypatch, most=1)
    loading = asyncio.ensure_future(engine.events.tail(task))
    await loads.all_read()
    await engine.tasks.discard(task)
    loads.go_on()
    with pytest.raises(TaskNotFound):
        await loading
    assert engine._tasks._cache.find(task) is None
    with pytest.raises(TaskNotFound):
        await engine.tasks.get(ANNA, task)


async def test_stored_feed_is_cut_and_epochs_still_do_not_repeat(
    database: Path, clock: MovableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hub.storage.common.feed.KEPT", 10)
    monkeypatch.setattr(registry_module, "KEPT", 10)
    monkeypatch.setattr(registry_module, "CUT_EVERY", 4)
    async with SqliteEngine(database, clock) as engine:
        epochs = []
        await enrolled(engine.registry, WorkerId("steady", "one"))
        for _ in range(3):
            lease = await enrolled(engine.registry)
            epochs.append(lease.epoch)
            await engine.registry.withdraw("default", lease.worker, proof(lease))
        for at in range(20):
            await enrolled(engine.registry, WorkerId("other", str(at)))
        assert engine.registry.last_of("default", "echo") is None
        assert engine.registry.last_of("default", "steady") is not None
        assert len(engine.registry._ended) == 0
        fresh = await enrolled(engine.registry, WorkerId("echo", "two"))
        assert fresh.epoch > max(epochs)
    with sqlite3.connect(database) as db:
        assert db.execute("select count(*) from change").fetchone()[0] <= 14
        assert (
            db.execute("select count(*) from beat").fetchone() == db.execute("select count(*) from lease").fetchone() == (22,)
        )
    db.close()
    async with SqliteEngine(database, clock) as engine:
        assert (await enrolled(engine.registry)).epoch > max(epochs)


def test_secret_depends_on_every_part_of_the_lease(clock: MovableClock) -> None:
    one, other = leases.LeaseTable(clock, b"a" * 32), leases.LeaseTable(clock, b"b" * 32)
    keys = [("default", WorkerId("echo", "one")), ("default", WorkerId("echo", "two")), ("else", WorkerId("echo", "one"))]
    secrets = {table._secret(key, epoch) for table in (one, other) for key in keys for epoch in (1, 2)}
    assert len(secrets) == 12


async def test_a_task_with_many_events_is_forgotten_and_alone(engine: SqliteEngine, clock: MovableClock) -> None:
    for events in (10, FORGET_EVENTS, FORGET_EVENTS + 1, 10, 10):
        task = await admitted(engine)
        await append(engine, task, *[text("x")] * (events - 1), DONE)
        clock.advance(1)
    clock.advance(100)
    second = timedelta(seconds=1)
    assert [await engine.tasks.forget(ended_for=second, paused_for=second) for _ in range(5)] == [1, 1, 1, 2, 0]
