"""Summaries: what is kept of a task when its log is deleted."""

from __future__ import annotations

from datetime import timedelta

import pytest

from hub.ports.state.engine import Engine
from rolecall.errors import TaskNotFound
from rolecall.model.a2a import TaskState
from rolecall.model.command import TaskQuery
from rolecall.model.ids import Caller, Cursor, TaskId
from rolecall.model.task import SUMMARY_SIZE, Summary
from tests.contract.conftest import Store
from tests.contract.words import ANNA, BERT, DONE, OTHER_ANNA, WORKER, admitted, append, message, status, text
from tests.helpers.clock import ManualClock

DAY = timedelta(days=1)
MONTH = timedelta(days=30)


async def forget(engine: Engine, *, summaries_for: timedelta = MONTH) -> int:
    """All that is older than a day."""
    count = 0
    while piece := await engine.tasks.forget(ended_for=DAY, paused_for=DAY, summaries_for=summaries_for):
        count += piece
    return count


async def summaries(engine: Engine, caller: Caller = ANNA, **filters: object) -> list[Summary]:
    found, query = list[Summary](), TaskQuery(**filters)  # type: ignore[arg-type]
    while True:
        page = await engine.summaries.page(caller, query)
        found += page.summaries
        if page.before is None:
            return found
        query = TaskQuery(**{**filters, "before": page.before})  # type: ignore[arg-type]


async def ids_of(engine: Engine, caller: Caller = ANNA, **filters: object) -> list[TaskId]:
    return [summary.id for summary in await summaries(engine, caller, **filters)]


async def test_a_task_that_is_deleted_leaves_a_summary_of_its_row(store: Store, engine: Engine, clock: ManualClock) -> None:
    task = await admitted(engine)
    await append(engine, task, text("content"), text("more"), DONE)
    row = await engine.tasks.get(ANNA, task)
    assert await summaries(engine) == []
    clock.advance(DAY.total_seconds() + 1)
    assert await forget(engine) == 1
    kept = Summary(
        id=task,
        caller=ANNA,
        role=row.role,
        worker=WORKER,
        context=row.context,
        state=TaskState.COMPLETED,
        at=Cursor(3),
        created=row.created,
        updated=row.updated,
    )
    for _ in range(2):
        assert await summaries(engine) == [await engine.summaries.get(ANNA, task)] == [kept]
        engine = await store.open_again(engine)


async def test_a_task_that_was_answered_by_a_bare_message_leaves_none(engine: Engine, clock: ManualClock) -> None:
    await append(engine, await admitted(engine), message())
    clock.advance(DAY.total_seconds() + 1)
    assert await forget(engine) == 1
    assert await summaries(engine) == []


async def test_a_task_that_is_older_than_summaries_leaves_none(engine: Engine, clock: ManualClock) -> None:
    await append(engine, await admitted(engine), DONE)
    clock.advance(2 * DAY.total_seconds())
    assert await forget(engine, summaries_for=DAY) == 1
    assert await summaries(engine) == []


async def test_summaries_are_their_callers_alone(engine: Engine, clock: ManualClock) -> None:
    tasks = {caller: await admitted(engine, caller) for caller in (ANNA, BERT, OTHER_ANNA)}
    for task in tasks.values():
        await append(engine, task, DONE)
    clock.advance(DAY.total_seconds() + 1)
    assert await forget(engine) == 3
    for caller, task in tasks.items():
        assert await ids_of(engine, caller) == [task]
        assert (await engine.summaries.get(caller, task)).id == task
    for stranger in (BERT, OTHER_ANNA):
        with pytest.raises(TaskNotFound):
            await engine.summaries.get(stranger, tasks[ANNA])
        assert await engine.summaries.erase(stranger, [tasks[ANNA]]) == 0
    assert await ids_of(engine) == [tasks[ANNA]]


async def test_pages_are_the_latest_update_first_and_filters_hold_on_each(engine: Engine, clock: ManualClock) -> None:
    expected: list[TaskId] = []
    for number in range(25):
        task = await admitted(engine, role=("writer", "reviewer")[number % 2])
        await append(engine, task, status(TaskState.FAILED) if number % 5 == 0 else DONE)
        clock.advance(60)
        expected.insert(0, task)
    clock.advance(DAY.total_seconds())
    assert await forget(engine) == 25
    assert await ids_of(engine, limit=4) == expected
    assert await ids_of(engine, limit=4, role="writer") == expected[::2]
    assert await ids_of(engine, limit=2, states=(TaskState.FAILED,)) == expected[4::5]
    assert len(await ids_of(engine, states=(TaskState.FAILED, TaskState.COMPLETED))) == 25
    middle = await engine.summaries.get(ANNA, expected[9])
    assert await ids_of(engine, limit=3, since=middle.updated) == expected[:10]


async def test_those_of_a_context_are_found_and_erased(store: Store, engine: Engine, clock: ManualClock) -> None:
    one, two, other = [await admitted(engine, context=context) for context in ("c-1", "c-1", "c-2")]
    for task in (one, two, other):
        await append(engine, task, DONE)
    clock.advance(DAY.total_seconds() + 1)
    await forget(engine)
    found = await engine.summaries.all_of(ANNA, context="c-1", limit=10)
    assert set(found) == {one, two}
    assert len(await engine.summaries.all_of(ANNA, context=None, limit=2)) == 2
    assert await engine.summaries.erase(ANNA, [*found, TaskId("unknown")]) == 2
    assert await ids_of(await store.open_again(engine)) == [other]


async def test_those_of_tasks_that_had_ended_by_a_time_are_found(engine: Engine, clock: ManualClock) -> None:
    ended: dict[TaskId, float] = {}
    for _ in range(3):
        task = await admitted(engine)
        await append(engine, task, DONE)
        ended[task] = clock.wall()
        clock.advance(60)
    clock.advance(DAY.total_seconds())
    await forget(engine)
    one, two, _ = ended
    assert {*await engine.summaries.all_of(ANNA, context="ctx", ended_by=ended[two], limit=9)} == {one, two}


async def test_a_summary_is_deleted_when_it_is_old(engine: Engine, clock: ManualClock) -> None:
    for _ in range(3):
        for _ in range(100):
            await append(engine, await admitted(engine), DONE)
        clock.advance(DAY.total_seconds())
    clock.advance(DAY.total_seconds() + 1)
    await forget(engine)
    assert len(await ids_of(engine, limit=100)) == 300
    pieces = []
    while piece := await engine.summaries.forget(ended_for=3.5 * DAY):
        pieces.append(piece)
    assert pieces == [100]
    while piece := await engine.summaries.forget(ended_for=DAY):
        pieces.append(piece)
    assert sum(pieces) == 300
    assert max(pieces) <= 200
    assert await summaries(engine) == []


async def test_a_summary_takes_the_place_of_the_bytes_of_its_task(store: Store, engine: Engine, clock: ManualClock) -> None:
    for event in (DONE, status(TaskState.INPUT_REQUIRED), message()):
        await append(engine, await admitted(engine), text("x" * 5_000), event)
    clock.advance(DAY.total_seconds() + 1)
    await forget(engine)
    for _ in range(2):
        assert store.disk.held(ANNA.workspace) == 2 * SUMMARY_SIZE
        engine = await store.open_again(engine)
    assert await engine.summaries.erase(ANNA, await engine.summaries.all_of(ANNA, context=None, limit=1)) == 1
    clock.advance(MONTH.total_seconds())
    assert await engine.summaries.forget(ended_for=MONTH) == 1
    assert store.disk.held(ANNA.workspace) == 0


async def test_pages_hold_each_of_those_that_ended_at_the_same_time(engine: Engine, clock: ManualClock) -> None:
    together = [await admitted(engine) for _ in range(5)]
    for task in together:
        await append(engine, task, DONE)
    clock.advance(DAY.total_seconds() + 1)
    await forget(engine)
    found = await ids_of(engine, limit=2)
    assert sorted(found) == sorted(together)
