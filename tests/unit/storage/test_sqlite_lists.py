"""Lists of tasks: the index that each uses, and the statements that their callers give up."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from hub.storage.sqlite.connections.readers import ListReaders
from hub.storage.sqlite.engine import SqliteEngine
from hub.storage.sqlite.tasks import list_count, list_page
from rolecall.errors import StoreUnavailable
from rolecall.model.a2a import TaskState
from rolecall.model.command import TaskQuery
from tests.contract.words import ANNA

ENDLESS = "with recursive n (i) as (select 1 union all select i + 1 from n) select count(*) from n"


@pytest.fixture
async def readers(engine: SqliteEngine, database: Path) -> AsyncIterator[ListReaders]:
    readers = ListReaders(database)
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
    readers = ListReaders(database)
    readers.start()
    endless = asyncio.create_task(readers.rows(ENDLESS))
    await asyncio.sleep(0.02)
    await readers.close()
    with pytest.raises(StoreUnavailable):
        await endless
    with pytest.raises(StoreUnavailable):
        await readers.rows("select 1")
