"""Lists of tasks: the index that each uses, and the statements that their callers give up."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from hub.storage.sqlite.connections.readers import ListReaders
from hub.storage.sqlite.engine import SqliteEngine
from hub.storage.sqlite.tasks.lists import list_count, list_page
from rolecall.errors import StoreUnavailable
from rolecall.model.a2a import TaskState
from rolecall.model.command import TaskQuery
from tests.contract.words import ANNA, DONE, admitted, append

ENDLESS = "with recursive n (i) as (select 1 union all select i + 1 from n) select count(*) from n"


@pytest.fixture
async def readers(engine: SqliteEngine, database: Path) -> AsyncIterator[ListReaders]:
    readers = ListReaders(database, engine.writer.settled)
    readers.start()
    yield readers
    await readers.close()


def plan(database: Path, sql: str, values: list[object]) -> str:
    with closing(sqlite3.connect(database)) as db:
        return "\n".join(str(row[3]) for row in db.execute(f"explain query plan {sql}", values))  # type: ignore[arg-type]


@pytest.mark.parametrize("role", [None, "echo"])
@pytest.mark.parametrize("state", sorted(set(TaskState) - {TaskState.COMPLETED, TaskState.SUBMITTED}))
def test_a_list_by_state_is_read_from_its_index(
    engine: SqliteEngine, database: Path, state: TaskState, role: str | None
) -> None:
    query = TaskQuery(states=(state,), role=role)
    assert "COVERING INDEX task_state (workspace=? AND caller=? AND state=?)" in plan(database, *list_count(ANNA, query))
    page = plan(database, *list_page(ANNA, query))
    assert "USING INDEX task_state (workspace=? AND caller=? AND state=?)" in page
    assert "TEMP B-TREE" not in page


def test_of_several_states_no_more_than_a_page_of_each_is_sorted(engine: SqliteEngine, database: Path) -> None:
    page = plan(database, *list_page(ANNA, TaskQuery(states=(TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED))))
    assert page.count("USING INDEX task_state (workspace=? AND caller=? AND state=?)") == 2
    assert page.count("TEMP B-TREE") == page.count("SCAN (subquery") == 2


@pytest.mark.parametrize("role", [None, "echo"])
def test_tasks_without_an_answer_are_read_from_the_open_ones(engine: SqliteEngine, database: Path, role: str | None) -> None:
    query = TaskQuery(states=(TaskState.SUBMITTED,), role=role)
    for sql, values in (list_count(ANNA, query), list_page(ANNA, query)):
        assert "USING INDEX task_idle (idle_since=?)" in plan(database, sql, values)


def test_completed_tasks_are_read_from_the_newest_change_on(engine: SqliteEngine, database: Path) -> None:
    page = plan(database, *list_page(ANNA, TaskQuery(states=(TaskState.COMPLETED,))))
    assert "USING INDEX task_newest (workspace=? AND caller=?)" in page
    assert "TEMP B-TREE" not in page


async def test_a_statement_that_is_given_up_is_interrupted_and_its_connection_is_used_again(readers: ListReaders) -> None:
    await readers.rows("select 1")  # opens the connection, which would be given up too
    before = set(threading.enumerate())
    for _ in range(3):
        endless = asyncio.create_task(readers.rows(ENDLESS))
        await asyncio.sleep(0.02)
        endless.cancel()
        with pytest.raises(asyncio.CancelledError):
            await endless
        assert await readers.rows("select 1") == [(1,)]
        assert set(threading.enumerate()) <= before, "another connection was opened, so the statement still runs"


@pytest.mark.parametrize("turns", range(1, 8))
async def test_a_statement_may_be_given_up_at_any_moment(readers: ListReaders, turns: int) -> None:
    endless = asyncio.create_task(readers.rows(ENDLESS))
    for _ in range(turns):
        await asyncio.sleep(0)
    endless.cancel()
    with pytest.raises(asyncio.CancelledError):
        await endless
    assert await asyncio.gather(*(readers.rows("select 1") for _ in range(3))) == [[(1,)]] * 3


async def test_two_statements_run_beside_each_other(readers: ListReaders) -> None:
    endless = asyncio.create_task(readers.rows(ENDLESS))
    await asyncio.sleep(0.01)
    assert await readers.rows("select 2") == [(2,)]
    endless.cancel()
    await asyncio.gather(endless, return_exceptions=True)


async def test_closing_ends_what_still_runs(engine: SqliteEngine, database: Path) -> None:
    readers = ListReaders(database, engine.writer.settled)
    readers.start()
    endless = asyncio.create_task(readers.rows(ENDLESS))
    await asyncio.sleep(0.02)
    await readers.close()
    with pytest.raises(StoreUnavailable):
        await endless
    with pytest.raises(StoreUnavailable):
        await readers.rows("select 1")


async def test_a_list_tells_nothing_that_readers_of_the_task_have_not_been_told(
    engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit is on disk, where lists read it, before the loop knows of it."""
    loop = asyncio.get_running_loop()
    soon = loop.call_soon_threadsafe

    def late(callback: Callable[..., object], *args: Any) -> Any:
        if callback.__name__ != "_settle":
            return soon(callback, *args)
        return threading.Timer(0.1, soon, (callback, *args)).start()

    task = await admitted(engine)
    monkeypatch.setattr(loop, "call_soon_threadsafe", late)
    ending = asyncio.create_task(append(engine, task, DONE))
    listed = False
    while not listed:
        (row,) = (await engine.tasks.page(ANNA, TaskQuery(limit=1))).rows
        listed = row.ended
        assert not listed or (await engine.tasks.get(ANNA, task)).ended
    await ending
