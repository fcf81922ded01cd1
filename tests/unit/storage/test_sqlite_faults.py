"""The SQLite engine when commits fail or are slow: nothing that was not stored becomes visible."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from hub.storage.sqlite.connections import writer as writer_module
from hub.storage.sqlite.engine import SqliteEngine
from rolecall.errors import LogMoved, StoreUnavailable, TaskNotFound
from rolecall.model.a2a import Ids, TaskState
from rolecall.model.command import TaskQuery
from rolecall.model.ids import START, WorkerId
from rolecall.model.worker import Health
from tests.contract.words import (
    ANNA,
    DONE,
    NAME,
    SOON,
    WORKER,
    a_row,
    a_turn,
    admitted,
    append,
    enrolled,
    kinds,
    proof,
    status,
    text,
)
from tests.helpers.clock import ManualClock
from tests.helpers.disk import Disk
from tests.helpers.reading import next_batch

DAY = timedelta(days=1)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    disk.install(monkeypatch)
    return disk


@pytest.fixture
async def engine(disk: Disk, database: Path, clock: ManualClock) -> AsyncIterator[SqliteEngine]:
    async with SqliteEngine(database, clock) as engine:
        yield engine


async def test_an_append_whose_commit_failed_is_not_visible(engine: SqliteEngine, disk: Disk) -> None:
    task = await admitted(engine)
    await append(engine, task, status(TaskState.WORKING), position="b.1", ids=Ids(task, "ctx", "w"))
    before = await engine.tasks.get(ANNA, task)
    reader = engine.events.follow(task, after=START, idle=SOON)
    assert len(await next_batch(reader)) == 1
    for events in ([text("lost")], [DONE], []):
        disk.fail_commits()
        with pytest.raises(StoreUnavailable):
            await append(engine, task, *events, after=1, position="lost", ids=Ids(task, "ctx", "w", "lost"))
        assert list(await next_batch(reader)) == []
        assert await engine.tasks.get(ANNA, task) == before
        assert list((await engine.tasks.page(ANNA, TaskQuery())).rows) == [before]
    assert await append(engine, task, text("kept"), after=1) == 2
    assert [logged.event.body for logged in await next_batch(reader)] == [b"kept"]


async def test_all_appends_of_a_failed_commit_fail(engine: SqliteEngine, disk: Disk) -> None:
    tasks = [await admitted(engine) for _ in range(5)]
    disk.fail_commits()
    results = await asyncio.gather(*(append(engine, task, text()) for task in tasks), return_exceptions=True)
    assert [type(result) for result in results] == [StoreUnavailable] * 5
    assert await asyncio.gather(*(append(engine, task, text()) for task in tasks)) == [1] * 5


async def test_a_task_whose_commit_failed_does_not_exist_and_its_name_is_free(engine: SqliteEngine, disk: Disk) -> None:
    row = a_row()
    disk.fail_commits()
    with pytest.raises(StoreUnavailable):
        await engine.tasks.admit(row, a_turn(), names=[NAME])
    assert await engine.tasks.find_call(NAME.digest, remembered=DAY) is None
    with pytest.raises(TaskNotFound):
        await engine.tasks.get(ANNA, row.id)
    with pytest.raises(LogMoved):
        await append(engine, row.id, text())
    assert await engine.tasks.admit(row, a_turn(), names=[NAME])
    assert await engine.tasks.get(ANNA, row.id) == row


async def test_a_row_change_whose_commit_failed_is_not_visible(engine: SqliteEngine, disk: Disk, clock: ManualClock) -> None:
    task = await admitted(engine)
    await engine.tasks.add_turn(task, a_turn("2", after=1))
    before, turns = await engine.tasks.get(ANNA, task), list(await engine.tasks.turns(task))
    clock.advance(60)
    for change in (
        engine.tasks.add_turn(task, a_turn("3", after=2)),
        engine.tasks.drop_turn(task, a_turn("2", after=1)),
        engine.tasks.assign(task, WorkerId("echo", "two"), 9, "1.0"),
        engine.tasks.discard(task),
    ):
        disk.fail_commits()
        with pytest.raises(StoreUnavailable):
            await change
        assert await engine.tasks.get(ANNA, task) == before
        assert list(await engine.tasks.turns(task)) == turns


async def test_a_lease_whose_commit_failed_is_unchanged(engine: SqliteEngine, disk: Disk, clock: ManualClock) -> None:
    registry = engine.registry
    disk.fail_commits()
    with pytest.raises(StoreUnavailable):
        await enrolled(registry)
    assert (registry.get("default", WORKER), len(registry)) == (None, 0)
    lease = await enrolled(registry, boot="one")
    for change in (
        enrolled(registry, boot="two"),
        enrolled(registry, boot="one", description="changed"),
        registry.mark("default", WORKER, 1, Health.SUSPECT, "why"),
        registry.withdraw("default", WORKER, proof(lease)),
    ):
        disk.fail_commits()
        with pytest.raises(StoreUnavailable):
            await change
        assert registry.get("default", WORKER) is lease
        assert (lease.epoch, lease.boot, lease.health, lease.offer.description) == (1, "one", Health.READY, "")
    clock.advance(1_000)
    disk.fail_commits()
    with pytest.raises(StoreUnavailable):
        await registry.sweep()
    assert await kinds(registry) == ["enrolled"]
    assert list(await registry.sweep()) == [lease]
    assert await kinds(registry) == ["enrolled", "expired"]


async def test_failed_work_does_not_count_towards_the_queue_limit(
    engine: SqliteEngine, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "QUEUE_LIMIT", 3)
    task = await admitted(engine)
    for at in range(10):
        if at % 2:
            disk.fail_commits()
            lost = append(engine, task, text())
        else:
            lost = append(engine, task, text(), position="lone surrogate \ud800")
        with pytest.raises(StoreUnavailable):
            await lost
    assert await append(engine, task, text()) == 1


async def test_a_paused_task_that_is_answered_while_it_is_being_forgotten_is_kept(
    engine: SqliteEngine, disk: Disk, clock: ManualClock
) -> None:
    answered, waiting = await admitted(engine), await admitted(engine)
    for task in (answered, waiting):
        await append(engine, task, status(TaskState.INPUT_REQUIRED))
    clock.advance(DAY.total_seconds() + 1)
    with disk.block_commits():
        answer = asyncio.ensure_future(engine.tasks.add_turn(answered, a_turn("2", after=1)))
        forget = asyncio.ensure_future(engine.tasks.forget(ended_for=DAY, paused_for=DAY))
        await asyncio.sleep(0)
        for _ in range(2):  # there is one reader, so both reads of what is forgotten are done
            await engine.tasks.holders()
    await asyncio.gather(answer, forget)
    assert [row.id for row in (await engine.tasks.page(ANNA, TaskQuery())).rows] == [answered]
    assert [turn.message_id for turn in await engine.tasks.turns(answered)] == ["m-1", "2"]
    assert (await engine.tasks.get(ANNA, answered)).at == 1


async def test_a_stored_row_is_at_most_200_events_behind_its_log(engine: SqliteEngine, database: Path) -> None:
    task = await admitted(engine)
    with closing(sqlite3.connect(database)) as db:
        for at in range(450):
            await append(engine, task, text(), after=at)
            (last,) = db.execute("select last from task").fetchone()
            assert at + 1 - last <= 200
    assert last == 400
