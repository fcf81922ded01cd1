"""The writer of the SQLite engine: batches, faults, recovery."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from hub.storage.sqlite.connections import writer as writer_module
from hub.storage.sqlite.engine import SqliteEngine
from rolecall.errors import LogMoved, StoreUnavailable, TaskNotFound
from rolecall.model.a2a import Ids
from rolecall.model.ids import START
from rolecall.model.worker import Beat, Health
from tests.contract.words import (
    ANNA,
    DONE,
    LONG,
    SOON,
    WORKER,
    a_row,
    a_turn,
    admitted,
    append,
    enrolled,
    proof,
    text,
)
from tests.helpers.clock import ManualClock
from tests.helpers.reading import next_batch, read_all


@asynccontextmanager
async def blocked_writer(engine: SqliteEngine) -> AsyncIterator[None]:
    """Blocks the writer's thread: nothing is committed inside."""
    unblock = threading.Event()
    started = threading.Event()

    def wait(db: sqlite3.Connection) -> None:
        started.set()
        unblock.wait(10)

    waiting = engine.writer.submit(wait)
    await asyncio.to_thread(started.wait, 10)
    try:
        yield
    finally:
        unblock.set()
        await waiting


async def turns() -> None:
    """Enough turns of the event loop for everything that does not wait for the disk."""
    for _ in range(20):
        await asyncio.sleep(0)


async def set_limit(engine: SqliteEngine, page_limit: int) -> None:
    await engine.writer.submit(lambda db: db.execute(f"pragma max_page_count = {page_limit}").fetchone())


async def test_concurrent_appends_share_commits(engine: SqliteEngine) -> None:
    tasks = [await admitted(engine) for _ in range(200)]
    before = engine.writer.commits
    cursors = await asyncio.gather(*(append(engine, task, text()) for task in tasks))
    assert cursors == [1] * 200
    assert engine.writer.commits - before < 20


async def test_maintenance_runs_when_nothing_is_written_and_never_within_a_batch(engine: SqliteEngine) -> None:
    writer, loop = engine.writer, asyncio.get_running_loop()

    def ask() -> asyncio.Future[bool]:
        within: asyncio.Future[bool] = loop.create_future()
        writer.between(lambda db: loop.call_soon_threadsafe(within.set_result, db.in_transaction))
        return within

    assert await asyncio.wait_for(ask(), 5) is False
    task = await admitted(engine)
    async with blocked_writer(engine):
        append_task = asyncio.ensure_future(append(engine, task, text()))
        await turns()
        within = ask()
        await turns()
        assert not within.done()
    assert await asyncio.wait_for(within, 5) is False
    assert await append_task == 1


async def test_failed_maintenance_is_logged_and_stops_no_write(engine: SqliteEngine, caplog: pytest.LogCaptureFixture) -> None:
    engine.writer.between(lambda db: db.execute("no sql"))
    task = await admitted(engine)
    assert await append(engine, task, text()) == 1
    assert "maintenance" in caplog.text


async def test_nothing_is_visible_before_it_is_durable(engine: SqliteEngine) -> None:
    task = await admitted(engine)
    reader = engine.events.follow(task, after=START, idle=SOON)
    row = a_row()
    async with blocked_writer(engine):
        append_task = asyncio.ensure_future(append(engine, task, text(), position="p", ids=Ids(task, "c", "w")))
        admit_task = asyncio.ensure_future(engine.tasks.admit(row, a_turn()))
        enrol_task = asyncio.ensure_future(enrolled(engine.registry))
        feed = engine.registry.changes("default", after=0, idle=SOON)
        assert list(await next_batch(reader)) == []
        assert list(await engine.events.read(task)) == []
        assert (await engine.tasks.get(ANNA, task)).at == 0
        assert (await engine.tasks.get(ANNA, task)).position is None
        with pytest.raises(TaskNotFound):
            await engine.tasks.get(ANNA, row.id)
        assert engine.registry.get("default", WORKER) is None
        assert list(await anext(feed)) == []
        assert not (append_task.done() or admit_task.done() or enrol_task.done())
    await asyncio.gather(append_task, admit_task, enrol_task)
    assert len(await next_batch(reader)) == len(await anext(feed)) == 1
    assert await engine.tasks.get(ANNA, row.id) == row


async def test_a_cancelled_append_is_published_once_it_is_stored(engine: SqliteEngine) -> None:
    task = await admitted(engine)
    reader = engine.events.follow(task, after=START, idle=LONG)
    async with blocked_writer(engine):
        append_task = asyncio.ensure_future(append(engine, task, text("stored")))
        await asyncio.sleep(0)
        append_task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await append_task
    assert [logged.event.body for logged in await next_batch(reader)] == [b"stored"]
    assert await append(engine, task, text(), after=1) == 2
    reader.stop()


async def test_a_cancelled_enrolment_is_applied_once_it_is_stored(engine: SqliteEngine) -> None:
    async with blocked_writer(engine):
        enrol_task = asyncio.ensure_future(enrolled(engine.registry, boot="one"))
        await asyncio.sleep(0)
        enrol_task.cancel()
        second = asyncio.ensure_future(enrolled(engine.registry, boot="two"))
        await asyncio.sleep(0)
    registration = await second
    assert registration.epoch == 2
    feed = engine.registry.changes("default", after=0, idle=SOON)
    assert [change.epoch for change in await anext(feed)] == [1, 2]


async def test_a_full_disk_fails_only_the_work_that_was_waiting(engine: SqliteEngine) -> None:
    tasks = [await admitted(engine) for _ in range(5)]
    lease = await enrolled(engine.registry)
    await set_limit(engine, 1)
    large = text("x" * 200_000)
    results = await asyncio.gather(*(append(engine, task, large) for task in tasks), return_exceptions=True)
    assert [type(result) for result in results] == [StoreUnavailable] * 5
    with pytest.raises(StoreUnavailable):
        await engine.tasks.admit(a_row(), a_turn(params=b"x" * 200_000))
    # Routing needs only memory.
    await engine.registry.beat("default", WORKER, proof(lease), Beat(in_flight=1))
    assert engine.registry.get("default", WORKER) is lease
    await set_limit(engine, 1_000_000)
    for task in tasks:
        assert list(await engine.events.read(task)) == []
        assert await append(engine, task, large) == 1
    assert await engine.writer.submit(lambda db: db.execute("pragma integrity_check").fetchone()[0]) == "ok"


async def test_a_locked_database_is_unavailable_until_it_is_unlocked(
    engine: SqliteEngine, database: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = await admitted(engine)
    lease = await enrolled(engine.registry)
    monkeypatch.setattr(writer_module, "BUSY_MILLIS", 0)
    other = sqlite3.connect(database, isolation_level=None)
    other.execute("begin immediate")
    for refused in (
        engine.ping(),
        append(engine, task, text()),
        engine.tasks.add_turn(task, a_turn("2")),
        enrolled(engine.registry, boot="two"),
        engine.registry.mark("default", WORKER, 1, Health.SUSPECT, ""),
        engine.registry.withdraw("default", WORKER, proof(lease)),
    ):
        with pytest.raises(StoreUnavailable):
            await refused
    assert engine.registry.get("default", WORKER) is lease
    assert (lease.health, lease.boot) == (Health.READY, "boot")
    clock.advance(1_000)
    with pytest.raises(StoreUnavailable):
        await engine.registry.sweep()
    other.close()
    await engine.ping()
    assert list(await engine.registry.sweep()) == [lease]
    assert await append(engine, task, text()) == 1


async def test_a_database_that_another_process_locks_does_not_stop_the_loop(engine: SqliteEngine, database: Path) -> None:
    """The thread may wait for the lock. The loop may not: what it writes itself goes to the thread instead."""
    task = await admitted(engine)
    loop = asyncio.get_running_loop()
    other = sqlite3.connect(database, isolation_level=None)
    other.execute("begin immediate")
    durations: list[float] = []
    running = asyncio.Event()

    async def tick() -> None:
        while True:
            before = loop.time()
            await asyncio.sleep(0.01)
            durations.append(loop.time() - before)
            if len(durations) == 20:
                running.set()

    timer_task = asyncio.create_task(tick())
    append_task = asyncio.create_task(append(engine, task, text()))
    await running.wait()
    assert not append_task.done()
    other.rollback()
    other.close()
    assert await append_task == 1
    timer_task.cancel()
    assert max(durations) < writer_module.BUSY_MILLIS / 1000 / 2


async def test_a_value_that_cannot_be_stored_fails_alone(engine: SqliteEngine) -> None:
    tasks = [await admitted(engine) for _ in range(3)]
    async with blocked_writer(engine):
        waiting = asyncio.gather(
            append(engine, tasks[0], text()),
            append(engine, tasks[1], text(), position="lone surrogate \ud800"),
            append(engine, tasks[2], text()),
            return_exceptions=True,
        )
        await asyncio.sleep(0)
    first, second, last = await waiting
    assert (first, last) == (1, 1)
    assert isinstance(second, StoreUnavailable)
    assert list(await engine.events.read(tasks[1])) == []
    assert await append(engine, tasks[1], text()) == 1


async def test_of_two_items_only_the_one_that_cannot_be_stored_fails(engine: SqliteEngine) -> None:
    tasks = [await admitted(engine) for _ in range(2)]
    async with blocked_writer(engine):
        waiting = asyncio.gather(
            append(engine, tasks[0], text(), position="lone surrogate \ud800"),
            append(engine, tasks[1], text()),
            return_exceptions=True,
        )
        await asyncio.sleep(0)
    failed, stored = await waiting
    assert isinstance(failed, StoreUnavailable)
    assert stored == 1


async def test_a_batch_begins_although_every_turn_of_the_loop_adds_work(engine: SqliteEngine) -> None:
    begun: list[int] = []
    submitted = []
    for number in range(5):
        submitted.append(engine.writer.submit(lambda db, number=number: begun.append(number), short=True))  # type: ignore[misc]
        await asyncio.sleep(0)
    assert begun[0] == 0
    await asyncio.gather(*submitted)
    assert begun == [0, 1, 2, 3, 4]


async def test_work_runs_again_after_a_fault_in_its_batch_and_its_last_result_counts(engine: SqliteEngine) -> None:
    runs: list[int] = []

    def count(db: sqlite3.Connection) -> int:
        runs.append(len(runs) + 1)
        return runs[-1]

    def fail(db: sqlite3.Connection) -> None:
        raise ValueError("cannot be stored")

    results: list[int] = []
    async with blocked_writer(engine):
        counted = engine.writer.submit(count, results.append, short=True)
        failed = engine.writer.submit(fail, short=True)
    assert await counted == 3  # on the loop, on the thread, and alone
    assert (runs, results) == ([1, 2, 3], [3])
    with pytest.raises(StoreUnavailable):
        await failed


async def test_the_queue_is_limited(engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "QUEUE_LIMIT", 3)
    tasks = [await admitted(engine) for _ in range(4)]
    async with blocked_writer(engine):
        waiting = [asyncio.ensure_future(append(engine, task, text())) for task in tasks]
        for _ in range(3):
            await asyncio.sleep(0)
        assert [task.done() for task in waiting] == [False, False, True, True]
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert [isinstance(result, StoreUnavailable) for result in results] == [False, False, True, True]
    assert await append(engine, tasks[3], text()) == 1


async def test_close_writes_what_was_submitted_and_refuses_later_work(engine: SqliteEngine) -> None:
    task = await admitted(engine)
    append_task = asyncio.ensure_future(append(engine, task, text()))
    await asyncio.sleep(0)
    await engine.writer.close()
    assert await append_task == 1
    with pytest.raises(StoreUnavailable):
        await append(engine, task, text(), after=1)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_a_broken_writer_fails_everything_that_waits(engine: SqliteEngine) -> None:
    def broken(db: sqlite3.Connection) -> None:
        raise RuntimeError("a bug")

    async with blocked_writer(engine):
        waiting = [engine.writer.submit(broken), engine.writer.submit(lambda db: None)]
    results = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 5)
    for thread in threading.enumerate():
        if thread.name == "sqlite writer":
            await asyncio.to_thread(thread.join, 5)  # so that its exception is reported in this test
    assert [type(result) for result in results] == [StoreUnavailable] * 2
    with pytest.raises(StoreUnavailable):
        await engine.ping()


async def test_a_bug_in_the_callback_of_a_write_is_logged_and_fails_only_that_write(
    engine: SqliteEngine, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: int) -> None:
        raise RuntimeError("a bug")

    async with blocked_writer(engine):
        waiting = [
            engine.writer.submit(lambda db: 1),
            engine.writer.submit(lambda db: 2, broken),
            engine.writer.submit(lambda db: 3),
        ]
        cancelled = engine.writer.submit(lambda db: 4, broken)
        cancelled.cancel()
    first, second, last = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 5)
    assert (first, last) == (1, 3)
    assert isinstance(second, StoreUnavailable)
    assert isinstance(second.__cause__, RuntimeError)
    assert caplog.text.count("RuntimeError: a bug") == 2
    await asyncio.wait_for(engine.ping(), 5)


async def test_a_short_task_is_served_without_a_read_of_the_store(
    engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_read(*_: object) -> list[tuple[object, ...]]:
        raise AssertionError("read from the store")

    monkeypatch.setattr(engine.reader, "rows", no_read)
    row = a_row()
    await engine.tasks.admit(row, a_turn())
    await append(engine, row.id, text(), ids=Ids(row.id, "c", "w", "wc"))
    await engine.tasks.add_turn(row.id, a_turn("2", after=1))
    await append(engine, row.id, DONE, after=1)
    assert len(await read_all(engine.events.follow(row.id, after=START, idle=LONG))) == 2
    assert len(await engine.events.read(row.id)) == 2
    assert len(await engine.tasks.turns(row.id)) == 2
    assert (await engine.tasks.get(ANNA, row.id)).ended


async def test_an_append_to_a_discarded_task_is_not_logged_in_a_new_task_with_its_key(engine: SqliteEngine) -> None:
    discarded, new_task = await admitted(engine), a_row()
    async with blocked_writer(engine):
        waiting = asyncio.gather(
            engine.tasks.discard(discarded),
            engine.tasks.admit(new_task, a_turn()),
            append(engine, discarded, text("for the discarded task")),
            return_exceptions=True,
        )
        await asyncio.sleep(0)
    assert [type(result) for result in await waiting] == [type(None), bool, LogMoved]
    assert list(await engine.events.read(new_task.id)) == []


async def test_beats_that_could_not_be_stored_are_stored_by_the_next_sweep(
    engine: SqliteEngine, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = await enrolled(engine.registry)
    monkeypatch.setattr(writer_module, "BUSY_MILLIS", 0)
    other = sqlite3.connect(database, isolation_level=None)
    other.execute("begin immediate")
    await engine.registry.beat("default", WORKER, proof(lease), Beat(in_flight=7))
    with pytest.raises(StoreUnavailable):
        await engine.registry.sweep()
    other.execute("rollback")
    await engine.registry.sweep()
    assert other.execute("select in_flight from beat").fetchall() == [(7,)]
    other.close()


def submit(engine: SqliteEngine, done: list[str], name: str, part: float = 0) -> asyncio.Future[None]:
    """An item of the workspace and the task in its name, such as `a/1`. `part`: fourths of what a batch may hold."""
    workspace, _, task = name.partition("/")
    size = int(part * writer_module.BATCH_BYTES / 4)
    return engine.writer.submit(lambda _: done.append(name), short=True, size=size, task=task[:1], workspace=workspace)


async def test_a_batch_ends_when_it_holds_many_bytes_and_small_items_come_first(engine: SqliteEngine) -> None:
    done: list[str] = []
    async with blocked_writer(engine):
        before = engine.writer.commits
        sizes = {"a": 0, "a/1": 3, "a/2": 2, "a/3": 9, "a/4": 0, "a/5": 4, "a/6": 1}
        waiting = [submit(engine, done, name, size) for name, size in sizes.items()]
    await asyncio.gather(*waiting)
    assert done == ["a", "a/4", "a/1", "a/2", "a/3", "a/5", "a/6"]
    # One commit is the blocking item's. Each batch ends with the item by which it holds more than its limit.
    assert engine.writer.commits - before == 1 + 3


async def test_large_items_of_a_workspace_let_those_of_others_in_between(engine: SqliteEngine) -> None:
    done: list[str] = []
    async with blocked_writer(engine):
        waiting = [submit(engine, done, f"busy/{number}", 5) for number in range(5)]
        waiting += [submit(engine, done, name, 5) for name in ("quiet/x", "third/y", "quiet/z")]
    await asyncio.gather(*waiting)
    names = [name.partition("/")[0] for name in done]
    assert names == ["busy", "quiet", "third", "busy", "quiet", "busy", "busy", "busy"]


async def test_items_of_a_task_stay_in_order_whatever_their_sizes(engine: SqliteEngine) -> None:
    done: list[str] = []
    async with blocked_writer(engine):
        waiting = [
            submit(engine, done, name, size) for name, size in (("a/8", 5), ("a/1", 5), ("b/2", 5), ("/1 small", 0), ("b/3", 0))
        ]
        waiting += [submit(engine, done, "/1 again", 5), submit(engine, done, "a/1 last", 0)]
    await asyncio.gather(*waiting)
    assert [name for name in done if "/1" in name] == ["a/1", "/1 small", "/1 again", "a/1 last"]
    assert done[0] == "b/3"


async def test_many_small_items_are_one_batch(engine: SqliteEngine) -> None:
    async with blocked_writer(engine):
        before = engine.writer.commits
        waiting = [engine.writer.submit(lambda _: None, short=True, size=100) for _ in range(300)]
    await asyncio.gather(*waiting)
    assert engine.writer.commits - before == 2


async def test_content_above_a_limit_is_not_queued_while_the_disk_is_slow(
    engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "QUEUE_BYTES", 100_000)
    tasks = [await admitted(engine) for _ in range(3)]
    async with blocked_writer(engine):
        first, second, third = (asyncio.ensure_future(append(engine, task, text("x" * 60_000))) for task in tasks)
        await turns()
        with pytest.raises(StoreUnavailable):
            await third
    await first
    await second
    await append(engine, tasks[2], text("again"))


async def test_large_content_is_written_beside_the_loop(engine: SqliteEngine) -> None:
    threads: set[int] = set()
    task = await admitted(engine)
    for size in (10, writer_module.ON_LOOP_BYTES + 1):
        seen = asyncio.get_running_loop().create_future()
        engine.writer.submit(lambda _: threads.add(threading.get_ident()), seen.set_result, short=True, size=size)
        await seen
    assert len(threads) == 2
    assert threading.get_ident() in threads
    assert task
