"""The SQLite engine's cache: bounded, and never older than the store."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from hub.ports.state.event_log import LogEntry
from hub.storage.common import leases
from hub.storage.common.cached_task import CachedTask, numbered
from hub.storage.common.log_tail import TAIL_BYTES, TAIL_EVENTS
from hub.storage.sqlite import registry as registry_module
from hub.storage.sqlite.cache import Cache
from hub.storage.sqlite.engine import SqliteEngine
from hub.storage.sqlite.tasks import store as tasks_module
from hub.storage.sqlite.tasks.deletion import FORGET_EVENTS
from rolecall.errors import TaskNotFound
from rolecall.model.a2a import Logged, TaskState
from rolecall.model.ids import START, Cursor, TaskId, WorkerId
from rolecall.model.worker import Health, LeaseProof, Offer
from tests.contract.words import (
    ANNA,
    DONE,
    LONG,
    SOON,
    a_row,
    a_turn,
    admitted,
    append,
    enrolled,
    grown,
    proof,
    status,
    text,
)
from tests.helpers.clock import ManualClock
from tests.helpers.reading import next_batch, read_all


def a_cached_task(events: int = 0, size: int = 100) -> CachedTask:
    cached = CachedTask(a_row(), [a_turn()])
    cached.extend([Logged(Cursor(at), text("x" * size)) for at in range(1, events + 1)])
    return cached


@pytest.fixture
def cache() -> Cache:
    """It keeps one open task and no ended task."""
    return Cache(open_tasks=1, ended=0)


@pytest.fixture
async def engine(database: Path, clock: ManualClock, cache: Cache) -> AsyncIterator[SqliteEngine]:
    async with SqliteEngine(database, clock, cache=cache) as engine:
        yield engine


async def left_memory(engine: SqliteEngine, cache: Cache) -> TaskId:
    """A task that is in the store and not in memory."""
    task = await admitted(engine)
    await admitted(engine)
    gc.collect()
    assert cache.find(task) is None
    return task


_LOAD_TASK = "from task_now where id ="


class BlockedLoads:
    """Blocks the next `count` loads of a task after they have read the store."""

    def __init__(self, engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch, *, count: int) -> None:
        self._read, self._to_block = engine.reader.rows, count
        self._all_blocked, self._go_on = asyncio.Event(), asyncio.Event()
        monkeypatch.setattr(engine.reader, "rows", self._rows)

    async def _rows(self, sql: str, parameters: Any = ()) -> list[tuple[Any, ...]]:
        found = await self._read(sql, parameters)
        if _LOAD_TASK in sql and self._to_block:
            self._to_block -= 1
            if not self._to_block:
                self._all_blocked.set()
            await self._go_on.wait()
        return found

    async def all_read(self) -> None:
        await asyncio.wait_for(self._all_blocked.wait(), 5)

    def go_on(self) -> None:
        self._go_on.set()


@pytest.mark.parametrize(("events", "size"), [(3 * TAIL_EVENTS, 1), (100, TAIL_BYTES // 10)])
def test_a_tail_is_limited_in_events_and_bytes(events: int, size: int) -> None:
    tail = a_cached_task(events, size)
    kept = tail.since(Cursor(0))
    assert len(kept) <= TAIL_EVENTS
    assert sum(len(logged.event.body) for logged in kept) == tail.size <= TAIL_BYTES
    assert kept[-1].cursor == tail.end == events
    assert tail.covers(Cursor(events - len(kept)))
    assert not tail.covers(Cursor(events - len(kept) - 1))


def test_an_append_that_is_already_loaded_does_not_change_the_row() -> None:
    loaded = CachedTask(a_row(at=Cursor(6), state=TaskState.COMPLETED, position="b.6"), None)
    stale = LogEntry([status(TaskState.WORKING)], "b.5")
    loaded.advance(stale, [Logged(Cursor(5), stale.events[0])], numbered(stale.events, START, loaded.state)[1], updated=0.0)
    row = loaded.row
    assert (row.at, row.state, row.position) == (6, TaskState.COMPLETED, "b.6")
    assert loaded.position == "b.6"
    loaded.advance(LogEntry([text()]), [Logged(Cursor(7), text())], numbered([text()], START, loaded.state)[1], updated=1.0)
    assert (loaded.row.at, loaded.row.state) == (7, TaskState.COMPLETED)


def test_the_cache_evicts_the_oldest_task_when_there_are_too_many() -> None:
    cache = Cache(open_tasks=2)
    for name in ("a", "b", "c"):
        cache.keep(TaskId(name), a_cached_task())
    gc.collect()
    assert [cache.find(TaskId(name)) is not None for name in ("a", "b", "c")] == [False, True, True]


def test_the_cache_subtracts_the_weight_of_evicted_tasks() -> None:
    cache = Cache(open_tasks=3, size=20_000)
    names = [TaskId(str(at)) for at in range(100)]
    for name in names:
        cache.keep(name, a_cached_task())
    last = a_cached_task()
    for _ in range(100):
        cache.keep(names[-1], last)
    gc.collect()
    assert [name for name in names if cache.find(name) is not None] == names[-3:]


def test_a_followed_task_that_is_evicted_by_weight_drops_only_its_contents() -> None:
    cache = Cache(size=20_000)
    task_in_use = a_cached_task(50, 150)
    cache.keep(TaskId("followed"), task_in_use)
    cache.keep(TaskId("other"), a_cached_task(50, 300))
    assert cache.find(TaskId("followed")) is task_in_use
    assert (task_in_use.size, task_in_use.turns, task_in_use.end) == (0, None, 50)
    assert not task_in_use.covers(Cursor(49))


def test_the_cache_keeps_few_ended_tasks_and_they_evict_no_open_task() -> None:
    cache = Cache(open_tasks=2, ended=2)
    cache.keep(TaskId("at work"), a_cached_task())
    for name in ("a", "b", "c"):
        task = a_cached_task()
        cache.keep(TaskId(name), task)
        task.close()
        cache.keep(TaskId(name), task)
    del task
    gc.collect()
    assert [cache.find(TaskId(name)) is not None for name in ("at work", "a", "b", "c")] == [True, False, True, True]


def test_the_cache_finds_a_followed_task_that_has_ended_since_it_was_evicted() -> None:
    cache = Cache(open_tasks=1, ended=1)
    task_in_use = a_cached_task()
    cache.keep(TaskId("followed"), task_in_use)
    cache.keep(TaskId("other"), a_cached_task())
    task_in_use.close()
    cache.keep(TaskId("followed"), task_in_use)
    cache.keep(TaskId("another"), CachedTask(a_row(state=TaskState.COMPLETED), None))
    assert cache.find(TaskId("followed")) is task_in_use


async def test_an_ended_task_that_is_too_large_to_be_kept_is_read_once() -> None:
    cache = Cache(size=0)
    reads = list[TaskId]()

    async def read(task: TaskId) -> CachedTask:
        reads.append(task)
        return CachedTask(a_row(state=TaskState.COMPLETED), None)

    found = await asyncio.wait_for(cache.load(TaskId("large"), read), 5)
    assert (found.closed, reads) == (True, ["large"])
    assert cache.find(TaskId("large")) is None


def test_a_tail_keeps_the_newest_event_however_large_it_is() -> None:
    tail = a_cached_task(3, 2 * TAIL_BYTES)
    assert [logged.cursor for logged in tail.since(Cursor(2))] == [3]
    assert not tail.covers(Cursor(1))
    tail.extend([Logged(Cursor(4), text("small"))])
    assert [logged.cursor for logged in tail.since(Cursor(3))] == [4]
    assert not tail.covers(Cursor(2))


def test_the_cache_keeps_no_ended_task_that_is_larger_than_its_part() -> None:
    cache = Cache(size=8_000)
    for name, size in (("small", 10), ("large", 2_000)):
        task = CachedTask(a_row(state=TaskState.COMPLETED), [a_turn(params=b"x" * size)])
        task.close()
        cache.keep(TaskId(name), task)
    del task
    gc.collect()
    assert cache.find(TaskId("large")) is None


async def test_a_write_to_an_evicted_task_reaches_its_reader(engine: SqliteEngine) -> None:
    task = await admitted(engine)
    expected = await grown(engine, task, 5)
    reader = engine.events.follow(task, after=START, idle=LONG)
    await admitted(engine)
    assert list(await next_batch(reader)) == expected
    waiting = asyncio.ensure_future(next_batch(reader))
    await asyncio.sleep(0)
    await append(engine, task, text("6"), after=5)
    assert [logged.cursor for logged in await waiting] == [6]
    await admitted(engine)
    assert [turn.message_id for turn in await engine.tasks.turns(task)] == ["m-1"]
    await append(engine, task, DONE, after=6)
    assert [logged.cursor for logged in await read_all(reader)] == [7]


async def test_a_task_that_is_written_during_its_load_is_loaded_again(
    engine: SqliteEngine, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = await left_memory(engine, cache)
    read = engine.reader.rows
    writes = [append(engine, task, text("1"))]

    async def slow(sql: str, parameters: Any = ()) -> list[tuple[Any, ...]]:
        found = await read(sql, parameters)
        while writes:
            await writes.pop()
        return found

    monkeypatch.setattr(engine.reader, "rows", slow)
    reader = engine.events.follow(task, after=START, idle=SOON)
    assert [logged.cursor for logged in await next_batch(reader)] == [1]
    await append(engine, task, text("2"), after=1)
    assert [logged.cursor for logged in await next_batch(reader)] == [2]


async def test_both_readers_of_a_task_that_is_written_during_their_loads_get_its_end(
    engine: SqliteEngine, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, loads = await left_memory(engine, cache), BlockedLoads(engine, monkeypatch, count=2)
    readers = [asyncio.ensure_future(read_all(engine.events.follow(task, after=START, idle=LONG))) for _ in range(2)]
    await loads.all_read()
    await append(engine, task, DONE)
    loads.go_on()
    received = await asyncio.wait_for(asyncio.gather(*readers), 5)
    assert [[logged.cursor for logged in events] for events in received] == [[1], [1]]
    assert (await engine.tasks.get(ANNA, task)).ended


async def test_a_cancelled_load_does_not_stop_the_other_loads_from_being_renewed(
    engine: SqliteEngine, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, loads = await left_memory(engine, cache), BlockedLoads(engine, monkeypatch, count=2)
    first, second = [asyncio.ensure_future(engine.events.tail(task)) for _ in range(2)]
    await loads.all_read()
    first.cancel()
    await asyncio.wait([first])
    await append(engine, task, DONE)
    loads.go_on()
    tail = await second
    assert (tail.end, tail.closed) == (1, True)
    assert cache.loading == 0


async def test_a_load_is_discarded_if_the_task_was_cached_and_evicted_meanwhile(
    engine: SqliteEngine, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, loads = await left_memory(engine, cache), BlockedLoads(engine, monkeypatch, count=1)
    loading = asyncio.ensure_future(engine.events.tail(task))
    await loads.all_read()
    await engine.events.tail(task)
    await append(engine, task, DONE)
    await admitted(engine)
    gc.collect()
    assert cache.find(task) is None
    loads.go_on()
    tail = await loading
    assert (tail.end, tail.closed) == (1, True)


async def test_a_task_that_is_discarded_during_its_load_is_not_cached(
    engine: SqliteEngine, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, loads = await left_memory(engine, cache), BlockedLoads(engine, monkeypatch, count=1)
    loading = asyncio.ensure_future(engine.events.tail(task))
    await loads.all_read()
    await engine.tasks.discard(task)
    loads.go_on()
    with pytest.raises(TaskNotFound):
        await loading
    assert cache.find(task) is None
    with pytest.raises(TaskNotFound):
        await engine.tasks.get(ANNA, task)


async def test_epochs_do_not_repeat_after_the_stored_feed_was_trimmed(
    database: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hub.storage.common.feed.KEPT", 10)
    monkeypatch.setattr(registry_module, "KEPT", 10)
    monkeypatch.setattr(registry_module, "TRIM_EVERY", 4)
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


async def test_an_ended_lease_is_trimmed_with_the_feed_but_not_while_a_task_is_paused_there(
    database: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_module, "KEPT", 10)
    monkeypatch.setattr(registry_module, "TRIM_EVERY", 4)
    holder, other = WorkerId("echo", "Zone:1"), WorkerId("echo", "2")
    async with SqliteEngine(database, clock) as engine:
        task = await admitted(engine, worker=holder)
        await append(engine, task, status(TaskState.INPUT_REQUIRED))
        for worker in (holder, other):
            lease = await enrolled(engine.registry, worker)
            await engine.registry.withdraw("default", worker, proof(lease))

        async def gone_after() -> tuple[bool, bool]:
            for at in range(20):
                await enrolled(engine.registry, WorkerId("other", str(at)), boot=str(at), url=f"http://127.0.0.1:{at + 1}/")
                await engine.registry.withdraw("default", WorkerId("other", str(at)), LeaseProof(None, None))
            found = [await engine.registry.ended("default", worker) for worker in (holder, other)]
            return found[0] is None, found[1] is None

        assert await gone_after() == (False, True)
        await append(engine, task, DONE, after=1)
        assert await gone_after() == (True, True)
    with sqlite3.connect(database) as db:
        assert db.execute("select count(*) from ended_lease").fetchone()[0] <= 14
    db.close()


async def test_paused_tasks_are_found_by_their_own_index(engine: SqliteEngine) -> None:
    """Without it every look at the workers of paused tasks would scan all tasks."""
    for number in range(3):
        await append(engine, await admitted(engine, epoch=number), status(TaskState.INPUT_REQUIRED))

    def plans(db: sqlite3.Connection) -> list[str]:
        asked = ((tasks_module.HOLDERS, ()), (tasks_module.PAUSED_AT, ("default", "echo:one", 1, "", 50)))
        return [row[3] for sql, values in asked for row in db.execute(f"explain query plan {sql}", values)]

    steps = [step for step in await engine.writer.submit(plans) if " task " in f"{step} " and "PRIMARY KEY" not in step]
    assert len(steps) == 5
    assert all("USING INDEX task_paused" in step for step in steps)


def secret_of(table: leases.LeaseTable, key: leases.Key, epoch: int) -> str:
    offer = Offer(key[1], url="http://127.0.0.1:1/")
    record = leases.LeaseRecord(offer, "anna", epoch, "boot", LONG, Health.READY, "", 0.0)
    registration = table.apply(leases.LeaseChange(key, record, (), 0.0, lasts=LONG), ())
    assert registration is not None
    return registration.secret


def test_the_lease_secret_depends_on_every_part_of_the_lease(clock: ManualClock) -> None:
    keys = [("default", WorkerId("echo", "one")), ("default", WorkerId("echo", "two")), ("else", WorkerId("echo", "one"))]
    secrets = {
        secret_of(leases.LeaseTable(clock, hub_secret), key, epoch)
        for hub_secret in (b"a" * 32, b"b" * 32)
        for key in keys
        for epoch in (1, 2)
    }
    assert len(secrets) == 12


async def test_a_task_with_many_events_is_forgotten_in_a_call_of_its_own(engine: SqliteEngine, clock: ManualClock) -> None:
    for events in (10, FORGET_EVENTS, FORGET_EVENTS + 1, 10, 10):
        task = await admitted(engine)
        await append(engine, task, *[text("x")] * (events - 1), DONE)
        clock.advance(1)
    clock.advance(100)
    second = timedelta(seconds=1)
    assert [await engine.tasks.forget(ended_for=second, paused_for=second) for _ in range(5)] == [1, 1, 1, 2, 0]
