"""The stored numbers of a caller's tasks, and what a statement of a call must not cost."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hub.storage.sqlite.engine import SqliteEngine
from rolecall.errors import StoreUnavailable
from rolecall.model.command import TaskQuery
from rolecall.model.ids import Caller, TaskId
from tests.contract.words import ANNA, BERT, DONE, NAME, a_row, a_turn, admitted, append, message
from tests.helpers.clock import ManualClock

_STEPS = st.lists(st.sampled_from(["admit", "repeat", "discard", "hide", "end", "erase", "fault"]), max_size=12)


async def stored_and_real(engine: SqliteEngine) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """The numbers as they are stored, and as they are counted now."""
    stored = await engine.reader.rows("select * from tally order by 1, 2, 3")
    real = await engine.reader.rows(
        "select workspace, caller, role, count(*) from task where not hidden group by 1, 2, 3 order by 1, 2, 3"
    )
    return [tuple(row) for row in stored], [tuple(row) for row in real]


def broken(db: sqlite3.Connection) -> None:
    raise ValueError


async def take(engine: SqliteEngine, step: str, caller: Caller, task: TaskId) -> None:
    match step:
        case "admit":
            await engine.tasks.admit(a_row(caller), a_turn())
        case "repeat":
            await engine.tasks.admit(a_row(caller), a_turn(), names=(NAME,))
        case "discard":
            await engine.tasks.discard(task)
        case "hide":
            await append(engine, task, message())
        case "end":
            await append(engine, task, DONE)
        case "erase":
            await engine.tasks.erase(task)
        case "fault":  # the whole batch is undone, and its items run again, one by one
            await engine.writer.submit(broken, short=True)


@settings(deadline=None, max_examples=40)
@given(steps=_STEPS)
async def test_the_numbers_of_tasks_are_right_whatever_shares_a_batch(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str]
) -> None:
    async with SqliteEngine(tmp_path_factory.mktemp("counts") / "hub.db", ManualClock()) as engine:
        planned = [(step, caller, await admitted(engine, caller)) for caller in (ANNA, BERT) for step in steps]
        work = [take(engine, step, caller, task) for step, caller, task in planned]
        for outcome in await asyncio.gather(*work, return_exceptions=True):
            assert outcome is None or isinstance(outcome, StoreUnavailable), outcome
        stored, real = await stored_and_real(engine)
        assert stored == real


async def test_a_list_tells_the_number_of_tasks_without_counting_them(engine: SqliteEngine) -> None:
    for _ in range(3):
        await admitted(engine)
    assert (await engine.tasks.page(ANNA, TaskQuery(limit=1))).total == 3


async def test_no_statement_of_a_call_has_a_trigger(engine: SqliteEngine) -> None:
    """With one, SQLite copies every page that the statement changes: half of what it costs."""
    rows = await engine.reader.rows("select name, sql from sqlite_master where type = 'trigger'")
    assert [name for name, sql in rows if "after delete" not in sql] == []


def test_a_hubs_process_does_not_count_the_memory_of_sqlite() -> None:
    program = """
import ctypes, _sqlite3, sqlite3, sys
from hub.storage.sqlite.connections.library import count_no_memory
if sys.argv[1] == "configured":
    count_no_memory()
db = sqlite3.connect(":memory:")
db.execute("create table t (x)")
print(ctypes.CDLL(_sqlite3.__file__).sqlite3_memory_used())
"""

    def used(how: str) -> int:
        done = subprocess.run([sys.executable, "-c", program, how], capture_output=True, text=True, check=True, timeout=30)
        return int(done.stdout)

    assert used("configured") == 0
    assert used("as it is") > 0
