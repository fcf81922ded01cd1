"""The names of calls: a row each, which decides whether a message is a repeat."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from hub.ports.state.engine import Engine
from rolecall.errors import TaskNotFound
from rolecall.model.a2a import TaskState
from rolecall.model.call import CallName, StoredCall
from rolecall.model.command import TaskQuery
from rolecall.model.ids import START, Cursor, TaskId
from tests.contract.conftest import Store
from tests.contract.pushing import add_config, buried
from tests.contract.words import ANNA, DONE, NAME, a_row, a_turn, admitted, append, message, status
from tests.helpers.clock import ManualClock

WINDOW = timedelta(seconds=60)
MADE, OTHER = CallName(b"made of contents"), CallName(b"made of others..")
DAY = timedelta(days=1)


async def named(engine: Engine, *names: CallName) -> TaskId:
    """A new task that is admitted under these names."""
    row = a_row()
    assert await engine.tasks.admit(row, a_turn(), names=names, remembered=WINDOW)
    return row.id


async def found(engine: Engine, name: CallName = MADE) -> TaskId | None:
    call = await engine.tasks.find_call(name.digest, remembered=WINDOW)
    return call.task if call is not None else None


async def refused(engine: Engine, *names: CallName) -> bool:
    """Whether a new task under these names is not admitted; then nothing of it is stored."""
    row, before = a_row(), (await engine.tasks.page(ANNA, TaskQuery())).total
    if await engine.tasks.admit(row, a_turn(), names=names, remembered=WINDOW):
        return False
    with pytest.raises(TaskNotFound):
        await engine.tasks.get(ANNA, row.id)
    assert (await engine.tasks.page(ANNA, TaskQuery())).total == before
    return True


async def paused(engine: Engine, *names: CallName) -> TaskId:
    task = await named(engine, *names)
    await append(engine, task, status(TaskState.INPUT_REQUIRED))
    return task


@pytest.mark.parametrize("name", [MADE, NAME])
async def test_a_call_is_found_by_its_name(store: Store, engine: Engine, name: CallName) -> None:
    task = await named(engine, name)
    for _ in range(2 if store.on_disk else 1):
        call = await engine.tasks.find_call(name.digest, remembered=WINDOW)
        assert call == StoredCall(task, "echo", START, name.content)
        assert await found(engine, OTHER) is None
        assert await refused(engine, name)
        engine = await store.reopen() if store.on_disk else engine


async def test_of_many_calls_with_one_name_at_once_one_is_admitted(engine: Engine) -> None:
    rows = [a_row() for _ in range(50)]
    waiting = [engine.tasks.admit(row, a_turn(), names=[MADE], remembered=WINDOW) for row in rows]
    admitted_rows = [row for row, stored in zip(rows, await asyncio.gather(*waiting), strict=True) if stored]
    assert [row.id for row in admitted_rows] == [await found(engine)]
    assert (await engine.tasks.page(ANNA, TaskQuery())).total == 1


async def test_a_call_with_two_names_gets_both_or_none(engine: Engine) -> None:
    task = await named(engine, MADE, NAME)
    assert await found(engine) == await found(engine, NAME) == task
    assert await refused(engine, OTHER, NAME)
    assert await found(engine, OTHER) is None


async def test_an_answer_has_names_of_its_own(store: Store, engine: Engine) -> None:
    task = await paused(engine, MADE)
    assert await engine.tasks.add_turn(task, a_turn("2", after=1), names=[OTHER], remembered=WINDOW)
    for _ in range(2 if store.on_disk else 1):
        call = await engine.tasks.find_call(OTHER.digest, remembered=WINDOW)
        assert call == StoredCall(task, "echo", Cursor(1), b"")
        assert not await engine.tasks.add_turn(task, a_turn("2", after=1), names=[OTHER], remembered=WINDOW)
        assert [turn.message_id for turn in await engine.tasks.turns(task)] == ["m-1", "2"]
        engine = await store.reopen() if store.on_disk else engine


async def test_an_answer_with_two_names_gets_both_or_none(engine: Engine) -> None:
    await named(engine, NAME)
    task = await paused(engine)
    assert not await engine.tasks.add_turn(task, a_turn("2", after=1), names=[OTHER, NAME], remembered=WINDOW)
    assert await found(engine, OTHER) is None
    assert await engine.tasks.add_turn(task, a_turn("2", after=1), names=[OTHER, MADE], remembered=WINDOW)
    assert await found(engine, OTHER) == await found(engine) == task


async def test_an_answer_that_is_refused_for_its_name_changes_nothing(engine: Engine, clock: ManualClock) -> None:
    await named(engine, MADE)
    task = await paused(engine)
    before = await engine.tasks.get(ANNA, task)
    clock.advance(5)
    assert not await engine.tasks.add_turn(task, a_turn("2", after=1), names=[MADE], remembered=WINDOW)
    assert await engine.tasks.get(ANNA, task) == before
    assert len(await engine.tasks.turns(task)) == 1


async def test_an_answer_to_an_unknown_task_has_no_name(engine: Engine) -> None:
    with pytest.raises(TaskNotFound):
        await engine.tasks.add_turn(a_row().id, a_turn("2", after=1), names=[MADE], remembered=WINDOW)
    assert await found(engine) is None


@pytest.mark.parametrize("name", [MADE, NAME])
async def test_the_name_of_a_discarded_task_is_free(store: Store, engine: Engine, name: CallName) -> None:
    await engine.tasks.discard(await named(engine, name))
    assert await found(engine, name) is None
    engine = await store.reopen() if store.on_disk else engine
    task = await named(engine, name)
    assert await found(engine, name) == task


async def test_a_dropped_answer_frees_its_own_names_only(engine: Engine) -> None:
    task = await paused(engine, MADE)
    await engine.tasks.add_turn(task, a_turn("2", after=1), names=[OTHER], remembered=WINDOW)
    await engine.tasks.drop_turn(task, a_turn("3", after=1))
    assert await found(engine, OTHER) == task
    await engine.tasks.drop_turn(task, a_turn("2", after=1))
    assert await found(engine, OTHER) is None
    assert await found(engine) == task
    assert await engine.tasks.add_turn(task, a_turn("2", after=1), names=[OTHER], remembered=WINDOW)


@pytest.mark.parametrize("event", [DONE, message()])
async def test_a_name_made_of_the_message_is_free_when_the_window_after_the_end_is_over(
    store: Store, engine: Engine, clock: ManualClock, event: object
) -> None:
    task = await named(engine, MADE)
    clock.advance(3600)
    assert await found(engine) == task  # it has not ended
    await append(engine, task, DONE if event is DONE else message())
    clock.advance(59)
    assert await found(engine) == task
    assert await refused(engine, MADE)
    clock.advance(1)
    engine = await store.reopen() if store.on_disk else engine
    assert await found(engine) is None
    again = await named(engine, MADE)
    assert await found(engine) == again


async def test_a_chosen_name_lasts_as_long_as_its_task(engine: Engine, clock: ManualClock) -> None:
    task = await named(engine, NAME)
    await append(engine, task, DONE)
    clock.advance(3600)
    while await engine.tasks.forget_calls(remembered=WINDOW):
        pass
    assert await found(engine, NAME) == task
    assert await refused(engine, NAME)
    clock.advance(DAY.total_seconds())
    assert await engine.tasks.forget(ended_for=DAY, paused_for=DAY) == 1
    assert await found(engine, NAME) is None
    await named(engine, NAME)


async def test_a_late_delivery_does_not_extend_the_window(engine: Engine, clock: ManualClock) -> None:
    task = await named(engine, MADE)
    await add_config(engine, task)
    await append(engine, task, DONE)
    clock.advance(100)
    await buried(engine, task)
    assert await found(engine) is None


async def test_the_end_of_a_task_does_not_free_the_name_that_a_later_one_has_got(engine: Engine, clock: ManualClock) -> None:
    first = await named(engine, MADE, NAME)
    await append(engine, first, DONE)
    clock.advance(61)
    second = await named(engine, MADE)
    await engine.tasks.forget_calls(remembered=WINDOW)
    await engine.tasks.discard(first)
    assert await found(engine) == second


async def test_a_task_that_takes_the_place_of_a_discarded_one_does_not_get_its_names(engine: Engine) -> None:
    for name in (MADE, OTHER):
        task = await named(engine, name)
        assert await found(engine, name) == task
        await engine.tasks.discard(task)
    await admitted(engine)
    assert await found(engine) is await found(engine, OTHER) is None


async def test_forgetting_deletes_free_names_a_piece_at_a_time(store: Store, engine: Engine, clock: ManualClock) -> None:
    names = [CallName(b"%016d" % number) for number in range(450)]
    for name in names:
        await append(engine, await named(engine, name), DONE)
        clock.advance(0.001)
    clock.advance(30)
    recent, still_open = await named(engine, MADE), await named(engine, OTHER)
    await append(engine, recent, DONE)
    assert await engine.tasks.forget_calls(remembered=WINDOW) == 0
    clock.advance(31)
    pieces = [await engine.tasks.forget_calls(remembered=WINDOW)]
    engine = await store.reopen() if store.on_disk else engine
    while piece := await engine.tasks.forget_calls(remembered=WINDOW):
        pieces.append(piece)
    assert sum(pieces) == 450
    assert len(pieces) > 1
    # Found with a longer window if they were still stored.
    assert not [name for name in names if await engine.tasks.find_call(name.digest, remembered=DAY)]
    assert (await found(engine), await found(engine, OTHER)) == (recent, still_open)
