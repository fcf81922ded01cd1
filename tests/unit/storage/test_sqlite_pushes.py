"""The outbox in SQLite: due deliveries are found by an index, and delivered ones are not in it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from hub.storage.sqlite import pushes
from hub.storage.sqlite.engine import SqliteEngine
from tests.contract.pushing import a_config
from tests.contract.words import ANNA, DONE, admitted, append, text


@pytest.mark.parametrize("sql", [pushes._NEXT_HOST, pushes._CLAIM])
async def test_due_deliveries_are_found_by_their_index_without_a_scan(engine: SqliteEngine, database: Path, sql: str) -> None:
    with closing(sqlite3.connect(database)) as db:
        values: object = ("",) if "?" in sql else {"host": "a", "now": 0, "until": 0, "room": 1}
        plan = [row[3] for row in db.execute(f"explain query plan {sql}", values)]  # type: ignore[arg-type]  # of either kind
    assert any("INDEX delivery_due" in step for step in plan)
    assert not [step for step in plan if step.startswith("SCAN delivery") and "delivery_due" not in step]


async def test_the_index_of_due_deliveries_is_empty_after_delivery(engine: SqliteEngine, database: Path) -> None:
    for _ in range(50):
        task = await admitted(engine)
        await engine.pushes.set(ANNA, a_config(task), limit=10)
        await append(engine, task, text("1"), DONE)
    while claims := await engine.pushes.claim(20, timedelta(seconds=30), at_once=20, busy={}):
        for claim in claims:
            await engine.pushes.delivered(claim, claim.last, hold=timedelta(seconds=30))
    with closing(sqlite3.connect(database)) as db:
        (due,) = db.execute("select count(*) from delivery indexed by delivery_due where sent < last").fetchone()
        (kept,) = db.execute("select count(*) from delivery").fetchone()
    assert (due, kept) == (0, 50)


async def test_the_next_claim_continues_behind_the_last_host(engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pushes, "HOSTS_PER_CLAIM", 3)
    for number in range(10):
        task = await admitted(engine)
        await engine.pushes.set(ANNA, a_config(task, host=f"h{number}.example"), limit=10)
        await append(engine, task, text("1"))
    found: list[str] = []
    for _ in range(8):
        found += [claim.config.host for claim in await engine.pushes.claim(50, timedelta(seconds=30), at_once=4, busy={})]
    assert sorted(found) == [f"h{number}.example" for number in range(10)]
