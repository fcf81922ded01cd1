"""The bytes that each workspace stores: every task counts for itself, its messages and its log, until it is deleted."""

from __future__ import annotations

from datetime import timedelta
from random import Random

import pytest

from hub.ports.state.engine import Engine
from rolecall.errors import Overloaded
from rolecall.model.a2a import TaskState
from rolecall.model.ids import START, Caller, Cursor
from rolecall.model.task import ROW_SIZE
from tests.contract.conftest import Store
from tests.contract.words import ANNA, BERT, DONE, NAME, OTHER_ANNA, a_row, a_turn, admitted, append, message, status, text
from tests.helpers.clock import ManualClock

DAY = timedelta(days=1)
FIRST = len(a_turn().params)


def held(store: Store) -> tuple[int, int]:
    """By the two workspaces."""
    return store.disk.held(ANNA.workspace), store.disk.held(OTHER_ANNA.workspace)


async def test_a_task_counts_with_its_messages_and_its_log(store: Store, engine: Engine) -> None:
    task = await admitted(engine)
    assert held(store) == (ROW_SIZE + FIRST, 0)
    await append(engine, task, text("x" * 100), status(TaskState.INPUT_REQUIRED))
    size = (await engine.tasks.get(ANNA, task)).size
    assert held(store) == (ROW_SIZE + FIRST + size, 0) and size > 100
    await engine.tasks.add_turn(task, a_turn("second", after=2, params=b"y" * 50))
    assert held(store) == (ROW_SIZE + FIRST + size + 50, 0)
    await engine.tasks.drop_turn(task, a_turn("second", after=2, params=b"y" * 50))
    await engine.tasks.drop_turn(task, a_turn("second", after=2, params=b"y" * 50))
    assert held(store) == (ROW_SIZE + FIRST + size, 0)
    await engine.tasks.discard(task)
    await engine.tasks.discard(task)
    assert held(store) == (0, 0)


async def test_what_is_not_stored_does_not_count(store: Store, engine: Engine) -> None:
    assert await engine.tasks.admit(a_row(), a_turn(), names=[NAME])
    before = held(store)
    assert not await engine.tasks.admit(a_row(), a_turn(), names=[NAME])
    with pytest.raises(Exception, match="Another writer"):
        await append(engine, a_row().id, DONE)
    assert held(store) == before


async def test_it_is_free_again_when_the_tasks_are_forgotten(store: Store, engine: Engine, clock: ManualClock) -> None:
    for caller in (ANNA, BERT, OTHER_ANNA):
        for event in (DONE, message(), status(TaskState.INPUT_REQUIRED)):
            task = await admitted(engine, caller)
            await append(engine, task, text("x" * 30), event)
    await admitted(engine, OTHER_ANNA)
    assert min(held(store)) > 3 * ROW_SIZE
    clock.advance(DAY.total_seconds() + 1)
    while await engine.tasks.forget(ended_for=DAY, paused_for=DAY):
        pass
    assert held(store) == (0, ROW_SIZE + FIRST)


async def test_an_engine_that_is_opened_counts_what_is_there(store: Store, engine: Engine) -> None:
    """Also what the rows of open tasks do not have yet."""
    rng, tasks = Random(7), []
    for number in range(60):
        caller = rng.choice((ANNA, BERT, OTHER_ANNA))
        task = await admitted(engine, caller)
        at = START
        for _ in range(rng.randrange(5)):
            events = [text("x" * rng.randrange(300)) for _ in range(rng.randrange(1, 4))]
            await append(engine, task, *events, after=at)
            at = Cursor(at + len(events))
        if number % 3 == 0:
            await engine.tasks.add_turn(task, a_turn("more", after=at, params=b"z" * rng.randrange(200)))
        if number % 2 == 0:
            await append(engine, task, DONE, after=at)
        tasks.append(task)
    before = held(store)
    engine = await store.open_again(engine)
    assert held(store) == before
    for task in tasks:
        await engine.tasks.discard(task)
    assert held(store) == (0, 0)


async def test_a_workspace_at_its_cap_stores_no_new_task_and_the_others_do(store: Store) -> None:
    store.limits = (100 * ROW_SIZE, 3 * ROW_SIZE)
    engine = await store.open()
    task = await admitted(engine)
    await append(engine, task, text("x" * 2 * ROW_SIZE))
    with pytest.raises(Overloaded) as refused:
        await admitted(engine)
    assert "ROLECALL_MAX_DISK_PER_WORKSPACE" in refused.value.message
    await append(engine, task, DONE, after=1)  # what runs is not taken away: its relay ends it
    assert await admitted(engine, Caller("elsewhere", "anna"))
    await engine.tasks.discard(task)
    assert await admitted(engine)
