"""Erasing tasks: nothing of them is left, in pieces, whatever happens in between."""

from __future__ import annotations

from datetime import timedelta

import pytest

from hub.ports.state.engine import Engine
from rolecall.errors import DeadLetterNotFound, LogMoved, TaskNotFound
from rolecall.model.a2a import PAUSED, TaskState
from rolecall.model.command import TaskQuery
from rolecall.model.ids import Caller, Cursor, TaskId
from tests.contract.conftest import Store
from tests.contract.pushing import add_config, buried, claimed
from tests.contract.words import (
    ANNA,
    BERT,
    DONE,
    NAME,
    OTHER_ANNA,
    SOON,
    a_row,
    a_turn,
    admitted,
    append,
    grown,
    message,
    status,
    text,
)
from tests.helpers.clock import ManualClock

REMEMBERED = timedelta(days=1000)


async def erased(engine: Engine, task: TaskId) -> int:
    """In how many pieces."""
    pieces = 1
    while await engine.tasks.erase(task):
        pieces += 1
    return pieces


async def whole(engine: Engine) -> TaskId:
    """An ended task with everything that a task may have: a name, turns, events, configs, a dead letter."""
    row = a_row()
    assert await engine.tasks.admit(row, a_turn(), names=[NAME])
    await add_config(engine, row.id)
    await add_config(engine, row.id, "owed")
    await append(engine, row.id, text(), status(TaskState.INPUT_REQUIRED))
    await engine.tasks.add_turn(row.id, a_turn("2", after=2))
    await append(engine, row.id, DONE, after=2)
    return row.id


async def test_nothing_of_an_erased_task_is_left(store: Store, engine: Engine) -> None:
    kept = await admitted(engine)
    before = store.disk.held(ANNA.workspace)
    task = await whole(engine)
    for claim in await claimed(engine):
        if claim.config.id == "c":
            await engine.pushes.bury(claim, Cursor(1), "HTTP 404", hold=timedelta())
    assert (await engine.pushes.dead_letters(ANNA, limit=10)).letters
    assert await erased(engine, task) == 1
    for again in (False, True):
        one = engine if not again else await store.open_again(engine)
        with pytest.raises(TaskNotFound):
            await one.tasks.get(ANNA, task)
        with pytest.raises(TaskNotFound):
            await one.pushes.list(ANNA, task)
        assert not await one.events.read(task)
        assert not await one.tasks.turns(task)
        assert await one.tasks.find_call(NAME.digest, remembered=REMEMBERED) is None
        assert not (await one.pushes.dead_letters(ANNA, limit=10)).letters
        assert not await claimed(one)
        page = await one.tasks.page(ANNA, TaskQuery())
        assert ([row.id for row in page.rows], page.total) == ([kept], 1)
        assert store.disk.held(ANNA.workspace) == before


async def test_an_unknown_task_is_erased_already(store: Store, engine: Engine) -> None:
    task = await whole(engine)
    assert [await erased(engine, task), await erased(engine, task), await erased(engine, a_row().id)] == [1, 1, 1]
    assert store.disk.held(ANNA.workspace) == 0


async def test_a_long_task_is_unknown_from_the_first_piece_on(
    store: Store, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hub.storage.sqlite.tasks.deletion.FORGET_EVENTS", 10)
    task, letter = await whole_and_long(engine)
    if not await engine.tasks.erase(task):
        pytest.skip("has no pieces")
    assert [row.id for row in await engine.tasks.all_of(ANNA, context=None, admitted_by=2e9, limit=9)] == [task]
    with pytest.raises(TaskNotFound):
        await engine.tasks.get(ANNA, task)
    with pytest.raises(TaskNotFound):
        await engine.pushes.redeliver(ANNA, task, "c", letter)
    with pytest.raises(LogMoved):
        await append(engine, task, text(), after=36)
    for query in (TaskQuery(), *(TaskQuery(states=(state,)) for state in TaskState)):
        page = await engine.tasks.page(ANNA, query)
        assert (page.rows, page.total) == ([], 0)
    assert not await engine.tasks.unfinished()
    assert not await engine.tasks.holders()
    assert await engine.tasks.find_call(NAME.digest, remembered=REMEMBERED) is None
    assert not await claimed(engine)
    assert store.disk.held(ANNA.workspace) > 0
    assert await erased(engine, task) == 3
    assert store.disk.held(ANNA.workspace) == 0


async def whole_and_long(engine: Engine) -> tuple[TaskId, Cursor]:
    """A task with 36 events and a dead letter."""
    row = a_row()
    assert await engine.tasks.admit(row, a_turn(), names=[NAME])
    await add_config(engine, row.id)
    await grown(engine, row.id, 35)
    await append(engine, row.id, status(TaskState.FAILED), after=35)
    await buried(engine, row.id, 1)
    return row.id, Cursor(1)


async def test_large_events_are_erased_in_pieces(store: Store, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hub.storage.sqlite.tasks.deletion.FORGET_BYTES", 250_000)
    task = await admitted(engine)
    await grown(engine, task, 6, size=100_000)
    await append(engine, task, DONE, after=6)
    assert await erased(engine, task) == (2 if store.on_disk else 1)
    assert store.disk.held(ANNA.workspace) == 0


async def test_what_a_killed_hub_has_left_is_forgotten(store: Store, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hub.storage.sqlite.tasks.deletion.FORGET_EVENTS", 10)
    task, _ = await whole_and_long(engine)
    await engine.tasks.erase(task)
    engine = await store.reopen()
    assert store.disk.held(ANNA.workspace) > 0
    with pytest.raises(TaskNotFound):
        await engine.tasks.get(ANNA, task)
    assert await engine.tasks.forget(ended_for=timedelta(days=1), paused_for=REMEMBERED) == 1
    assert not await engine.events.read(task)
    assert store.disk.held(ANNA.workspace) == 0


async def test_a_reader_of_an_erased_task_ends_without_a_gap(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hub.storage.sqlite.tasks.deletion.FORGET_EVENTS", 10)
    task = await admitted(engine)
    await grown(engine, task, 60, size=6_000)
    await append(engine, task, DONE, after=60)
    reader = engine.events.follow(task, after=Cursor(0), idle=SOON)
    seen = [logged.cursor for logged in await reader.page()]
    more = True
    while more:
        more = await engine.tasks.erase(task)
    while page := await reader.page():
        seen += [logged.cursor for logged in page]
    assert not await reader.live(lambda _: True)
    assert seen == [*range(1, len(seen) + 1)]


async def test_an_open_task_that_is_erased_gives_back_all_that_it_counts(store: Store, engine: Engine) -> None:
    task = await admitted(engine)
    await grown(engine, task, 50, size=100)
    await erased(engine, task)
    assert store.disk.held(ANNA.workspace) == 0
    with pytest.raises(LogMoved):
        await append(engine, task, DONE, after=50)


@pytest.mark.parametrize("context", [None, "ctx"])
async def test_all_tasks_of_a_caller_are_found_also_bare_messages(
    engine: Engine, clock: ManualClock, context: str | None
) -> None:
    mine = [await admitted(engine) for _ in range(3)]
    await append(engine, mine[0], message())
    await append(engine, mine[1], status(next(iter(PAUSED))))
    other = await admitted(engine, context="ctx-2")
    for caller in (BERT, OTHER_ANNA):
        await admitted(engine, caller)
    await admitted(engine, created=2_000_000_000.0)
    wanted = {*mine} if context else {*mine, other}

    async def found(caller: Caller = ANNA, limit: int = 10) -> list[TaskId]:
        rows = await engine.tasks.all_of(caller, context=context, admitted_by=1_700_000_000.0, limit=limit)
        return [row.id for row in rows]

    assert {*await found()} == wanted
    assert len(await found(limit=2)) == 2
    assert await found(Caller("default", "nobody")) == []
    for task in wanted:
        await erased(engine, task)
    assert await found() == []
    assert len(await found(BERT)) == 1


async def test_all_that_had_ended_by_a_time_are_found(engine: Engine, clock: ManualClock) -> None:
    bare, ended, failed, late, working, paused = [await admitted(engine) for _ in range(6)]
    for task, event in ((bare, message()), (ended, DONE), (working, text()), (paused, status(next(iter(PAUSED))))):
        await append(engine, task, event)
    clock.advance(60)
    await append(engine, failed, status(TaskState.FAILED))
    until = clock.wall()
    clock.advance(60)
    await append(engine, late, DONE)

    async def found(context: str | None = None) -> set[TaskId]:
        rows = await engine.tasks.all_of(ANNA, context=context, admitted_by=2e9, ended_by=until, limit=9)
        return {row.id for row in rows}

    assert await found() == await found("ctx") == {bare, ended, failed}
    assert await found("another") == set()


async def test_a_dead_letter_of_an_erased_task_cannot_be_sent_again(engine: Engine) -> None:
    task, letter = await whole_and_long(engine)
    await erased(engine, task)
    with pytest.raises((TaskNotFound, DeadLetterNotFound)):
        await engine.pushes.redeliver(ANNA, task, "c", letter)
