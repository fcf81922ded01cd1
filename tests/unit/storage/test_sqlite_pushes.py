"""The outbox in SQLite: due deliveries are found by an index, and delivered ones are not in it."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from hub.ports.state.pushes import DeliveryRoom
from hub.storage.sqlite import pushes
from hub.storage.sqlite.connections.database import migrate
from hub.storage.sqlite.engine import SqliteEngine
from rolecall.schema import MIGRATIONS
from tests.contract.pushing import a_config
from tests.contract.words import ANNA, DONE, admitted, append, text


@pytest.mark.parametrize("sql", [pushes._NEXT_WORKSPACE, pushes._NEXT_HOST, pushes._CLAIM])
async def test_due_deliveries_are_found_by_their_index_without_a_scan(engine: SqliteEngine, database: Path, sql: str) -> None:
    with closing(sqlite3.connect(database)) as db:
        named = {"workspace": "w", "host": "a", "now": 0, "until": 0, "room": 1}
        values: object = ("",) * sql.count("?") if "?" in sql else named
        plan = [row[3] for row in db.execute(f"explain query plan {sql}", values)]  # type: ignore[arg-type]  # of either kind
    assert any("INDEX delivery_due" in step for step in plan)
    assert not [step for step in plan if step.startswith("SCAN delivery") and "delivery_due" not in step]


async def test_the_index_of_due_deliveries_is_empty_after_delivery(engine: SqliteEngine, database: Path) -> None:
    for _ in range(50):
        task = await admitted(engine)
        await engine.pushes.set(ANNA, a_config(task), limit=10)
        await append(engine, task, text("1"), DONE)
    while claims := await engine.pushes.claim(DeliveryRoom(20, 20, 20), timedelta(seconds=30)):
        for claim in claims:
            await engine.pushes.delivered(claim, claim.last, hold=timedelta(seconds=30))
    with closing(sqlite3.connect(database)) as db:
        (due,) = db.execute("select count(*) from delivery indexed by delivery_due where sent < last").fetchone()
        (kept,) = db.execute("select count(*) from delivery").fetchone()
    assert (due, kept) == (0, 50)


async def test_the_next_claim_continues_behind_the_last_host(engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hub.storage.common.turns.MOST_LOOKS", 3)
    for number in range(10):
        task = await admitted(engine)
        await engine.pushes.set(ANNA, a_config(task, host=f"h{number}.example"), limit=10)
        await append(engine, task, text("1"))
    found: list[str] = []
    for _ in range(8):
        found += [claim.config.host for claim in await engine.pushes.claim(DeliveryRoom(50, 50, 4), timedelta(seconds=30))]
    assert sorted(found) == [f"h{number}.example" for number in range(10)]


def test_deliveries_of_an_earlier_version_belong_to_the_workspaces_of_their_tasks(tmp_path: Path) -> None:
    steps, db = tmp_path / "migrations", sqlite3.connect(tmp_path / "hub.db")
    steps.mkdir()
    for step in sorted(MIGRATIONS.glob("*.sql")):
        if step.name < "0009":
            shutil.copy(step, steps)
    with closing(db):
        migrate(db, steps)
        needed = [row for row in db.execute("pragma table_info(task)") if row[3] and row[4] is None and row[1] != "key"]
        columns = ", ".join(name for _, name, *_ in needed)
        values = ", ".join({"BLOB": "x''", "TEXT": f"'{name}'"}.get(kind.upper(), "0") for _, name, kind, *_ in needed)
        db.execute(f"insert into task (key, {columns}) values (1, {values})")
        db.execute("insert into delivery (task, config, only, host, sent, last, since, at) values (1, 'c', 0, 'h', 0, 1, 0, 0)")
        db.execute("insert into delivery (task, config, only, host, sent, last, since, at) values (2, 'c', 0, 'h', 0, 1, 0, 0)")
        db.commit()
        migrate(db)
        assert db.execute("select task, workspace, host from delivery order by task").fetchall() == [
            (1, "workspace", "h"),
            (2, "", "h"),
        ]
