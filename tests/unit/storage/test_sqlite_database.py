"""The database file: file system, permissions, lock and migrations."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from datetime import timedelta
from pathlib import Path, PureWindowsPath

import pytest

from hub.core.admission.idempotency import names_of
from hub.storage.sqlite.connections import database as database_file
from hub.storage.sqlite.engine import SqliteEngine
from rolecall.errors import HubError
from rolecall.model.a2a import TaskState
from rolecall.model.command import Target
from rolecall.model.ids import START, TaskId, WorkerId
from rolecall.model.worker import Health, Offer
from rolecall.protocol.codec import Codec
from rolecall.protocol.dialects import DIALECTS
from rolecall.schema import MIGRATIONS, newest
from tests.contract.words import ANNA, DONE, append, status
from tests.flow.conftest import say
from tests.helpers.clock import ManualClock

MOUNTS = """\
21 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
40 21 0:35 / /srv rw - nfs4 server:/export rw
41 40 0:36 / /srv/local\\040disk rw - xfs /dev/vdb rw
42 40 0:37 / /srv/twice rw - ext4 /dev/vdc rw
43 42 0:38 / /srv/twice rw - tmpfs tmpfs rw
"""


@pytest.mark.parametrize(
    ("directory", "kind"),
    [
        ("/var/lib", "ext4"),
        ("/srv/data", "nfs4"),
        ("/srvdata", "ext4"),
        ("/srv/local disk/x", "xfs"),
        ("/srv/twice", "tmpfs"),
    ],
)
def test_the_file_system_is_that_of_the_nearest_mount(directory: str, kind: str) -> None:
    assert database_file.file_system(Path(directory), MOUNTS) == kind


def test_the_file_system_is_unknown_without_mounts() -> None:
    assert database_file.file_system(Path("/var"), "") == ""


@pytest.mark.parametrize(
    ("directory", "kind"),
    [("C:\\data", ""), ("\\\\?\\C:\\data", ""), ("\\\\server\\share\\data", "smb3"), ("\\\\server\\share", "smb3")],
)
def test_a_folder_of_another_machine_is_known_on_windows(directory: str, kind: str) -> None:
    assert database_file.file_system(PureWindowsPath(directory), "") == kind


async def test_a_database_on_a_network_file_system_is_refused(
    database: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text("21 1 0:35 / / rw - nfs server:/export rw\n")
    monkeypatch.setattr(database_file, "MOUNTS", mounts)
    with pytest.raises(HubError, match="nfs"):
        await SqliteEngine(database, clock).__aenter__()


async def test_files_are_accessible_only_to_their_owner(database: Path, clock: ManualClock) -> None:
    async with SqliteEngine(database, clock) as engine:
        await engine.ping()
        assert database.parent.stat().st_mode & 0o777 == 0o700
        for file in database.parent.iterdir():
            assert file.stat().st_mode & 0o777 == 0o600, file.name


async def test_a_second_hub_on_the_same_file_is_refused_until_the_first_has_ended(database: Path, clock: ManualClock) -> None:
    async with SqliteEngine(database, clock):
        with pytest.raises(HubError, match="another process"):
            await SqliteEngine(database, clock).__aenter__()
        script = (
            "import asyncio, sys, pathlib\n"
            "from hub.storage.sqlite.engine import SqliteEngine\n"
            "from tests.helpers.clock import ManualClock\n"
            "asyncio.run(SqliteEngine(pathlib.Path(sys.argv[1]), ManualClock()).__aenter__())\n"
        )
        other = await asyncio.create_subprocess_exec(sys.executable, "-c", script, str(database), stderr=subprocess.PIPE)
        _, stderr = await asyncio.wait_for(other.communicate(), 30)
        assert other.returncode != 0
        assert b"in use by another process" in stderr
    async with SqliteEngine(database, clock) as engine:
        await engine.ping()


async def test_a_database_of_a_newer_hub_is_refused_and_not_changed(database: Path, clock: ManualClock) -> None:
    async with SqliteEngine(database, clock):
        pass
    with sqlite3.connect(database) as db:
        db.execute("pragma user_version = 999")
    db.close()
    with pytest.raises(HubError, match=r"version 999.*restore the backup from before the upgrade"):
        await SqliteEngine(database, clock).__aenter__()
    db = sqlite3.connect(database)
    assert db.execute("pragma user_version").fetchone() == (999,)
    db.close()


def test_a_migration_is_logged_with_its_versions(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    old = tmp_path / "old"
    old.mkdir()
    for step in sorted(MIGRATIONS.glob("*.sql"))[:3]:
        shutil.copy(step, old)
    db = sqlite3.connect(tmp_path / "hub.db", isolation_level=None)
    with closing(db), caplog.at_level("INFO", "hub.storage.sqlite.connections.database"):
        for folder in (old, MIGRATIONS, MIGRATIONS):
            database_file.migrate(db, folder)
    facts = [(record.getMessage(), record.__dict__["from"], record.__dict__["to"]) for record in caplog.records]
    assert facts == [("database created", 0, 3), ("database migrated", 3, newest())]


def test_a_file_that_is_no_database_is_refused(database: Path, clock: ManualClock) -> None:
    database.parent.mkdir()
    database.write_bytes(b"not a database at all" * 100)
    with pytest.raises(HubError, match="not a database"):
        asyncio.run(SqliteEngine(database, clock).__aenter__())


def test_an_engine_that_cannot_be_opened_leaves_no_thread(database: Path, clock: ManualClock) -> None:
    database.parent.mkdir()
    database.write_bytes(b"not a database at all" * 100)
    before = set(threading.enumerate())
    with pytest.raises(HubError):
        asyncio.run(SqliteEngine(database, clock).__aenter__())
    for thread in set(threading.enumerate()) - before:
        if thread.name == "sqlite writer":
            thread.join(5)
            assert not thread.is_alive()


def test_migrations_run_once_in_order_and_a_failed_one_is_rolled_back(tmp_path: Path) -> None:
    (tmp_path / "0001_a.sql").write_text("create table a (x);")
    (tmp_path / "0002_b.sql").write_text("create table b (x); insert into a values (1);")
    db = sqlite3.connect(":memory:", isolation_level=None)
    for _ in range(2):
        database_file.migrate(db, tmp_path)
    assert db.execute("pragma user_version").fetchone() == (2,)
    assert db.execute("select count(*) from a").fetchone() == (1,)
    (tmp_path / "0003_c.sql").write_text("create table c (x); insert into nowhere values (1);")
    with pytest.raises(sqlite3.Error):
        database_file.migrate(db, tmp_path)
    assert db.execute("pragma user_version").fetchone() == (2,)
    assert db.execute("select count(*) from sqlite_master where name = 'c'").fetchone() == (0,)
    db.close()


def test_each_migration_has_a_number_of_its_own() -> None:
    """The database remembers only the number of the last one."""
    numbers = [step.name[:4] for step in MIGRATIONS.glob("[0-9]*.sql")]
    assert len(set(numbers)) == len(numbers)


def at_version(database: Path, version: int, tmp_path: Path) -> sqlite3.Connection:
    """A database as a hub of that version left it."""
    folder = tmp_path / "migrations"
    folder.mkdir()
    for step in sorted(MIGRATIONS.glob("[0-9]*.sql"))[:version]:
        shutil.copy(step, folder)
    database_file.prepare(database)
    db = sqlite3.connect(database, isolation_level=None)
    database_file.migrate(db, folder)
    return db


async def test_leases_stored_before_the_beat_table_are_migrated(database: Path, clock: ManualClock, tmp_path: Path) -> None:
    offer = json.dumps({"worker": ["coder", "a"], "url": "http://127.0.0.1:1/", "models": [], "interfaces": []})
    row = ("w", "coder", "a", "own", 7, "boot", offer, 120.0, "ready", "", 1.0, 4, 3, 2.0, clock.wall() + 60)
    with closing(at_version(database, 2, tmp_path)) as db:
        db.execute(f"insert into lease values ({', '.join('?' * len(row))})", row)
    async with SqliteEngine(database, clock) as engine:
        (lease,) = engine.registry.live("w", "coder")
        assert (lease.epoch, lease.offer.capacity, lease.other_in_flight, lease.last_seen) == (7, 4, 3, 2.0)
        assert lease.health is Health.READY


async def test_a_feed_from_before_workspaces_had_their_own_revisions_goes_on(
    database: Path, clock: ManualClock, tmp_path: Path
) -> None:
    """Its readers continue with the revisions that they have."""
    with closing(at_version(database, 6, tmp_path)) as db:
        for workspace in ("acme", "default", "acme", "default", "acme"):
            db.execute(
                "insert into change (kind, workspace, role, instance, epoch, health, at) values (?, ?, ?, ?, ?, ?, ?)",
                ("withdrawn", workspace, "echo", "a", 1, None, 1.0),
            )
    async with SqliteEngine(database, clock) as engine:
        offer = Offer(WorkerId("echo", "b"), "http://127.0.0.1:1/")
        await engine.registry.enrol("default", offer, boot="b", ttl=timedelta(seconds=60))
        batch = await anext(engine.registry.changes("default", after=2, idle=timedelta()))
        assert [(change.revision, change.kind) for change in batch] == [(4, "withdrawn"), (5, "enrolled")]


OLD_TASK = {
    "workspace": ANNA.workspace,
    "caller": ANNA.name,
    "role": "echo",
    "epoch": 1,
    "context": "",
    "worker_task": "",
    "worker_context": "",
    "dialect": "0.3",
    "spoken": "0.3",
    "alias": "",
    "state": "working",
    "last": 0,
    "size": 0,
    "created": 0.0,
    "turn_after": 0,
    "turn_message": "m",
    "turn_dialect": "0.3",
}


async def test_a_task_stored_without_a_public_context_gets_one(database: Path, clock: ManualClock, tmp_path: Path) -> None:
    with closing(at_version(database, 7, tmp_path)) as db:
        for task, context in (("its id", ""), ("another", "mine")):
            row = {**OLD_TASK, "id": task, "updated": 0.0, "turn_params": b"{}", "context": context}
            db.execute(f"insert into task ({', '.join(row)}) values ({', '.join('?' * len(row))})", tuple(row.values()))
    async with SqliteEngine(database, clock) as engine:
        assert {row.id: row.context for row in await engine.tasks.unfinished()} == {"its id": "its id", "another": "mine"}


async def test_calls_stored_before_the_call_table_are_recognised(database: Path, clock: ManualClock, tmp_path: Path) -> None:
    now, codec = time.time(), Codec(clock.wall)
    message = {"role": "user", "parts": [{"type": "text", "text": "hi"}]}
    sends = {text: say(text, messageId=text) for text in ("open", "recent", "old")}
    sends["key"] = say("key", messageId="key", key="k")
    sends["recent key"] = say("recent key", messageId="recent key", key="l")
    sends["alias"] = DIALECTS["0.1"].requests.read_send({"id": "mine", "message": message}, Target())
    sends["an earlier open"] = sends["open"]
    stored = {"an earlier open": ("", now - 1), "open": ("", None), "recent": (None, now - 1), "old": ("", now - 90_000)}
    stored |= {"key": ("k", now - 90_000), "alias": ("alias\nmine", now - 90_000), "recent key": ("l", now - 1)}
    with closing(at_version(database, 4, tmp_path)) as db:
        for text, (key, ended) in stored.items():
            params = codec.record(sends[text], after=START).params
            row = {
                "id": text,
                "updated": ended or 0.0,
                "idle_since": ended,
                "turn_params": params,
                "caller_key": key,
                **OLD_TASK,
            }
            db.execute(f"insert into task ({', '.join(row)}) values ({', '.join('?' * len(row))})", tuple(row.values()))
    del sends["an earlier open"]
    # Older hubs did not store whether the path named the role.
    sends["open at another path"] = say("open", None, messageId="open")
    sends["recent key without it"] = say("recent key", messageId="recent key")
    async with SqliteEngine(database, clock) as engine:
        found = dict[str, str]()
        for text, send in sends.items():
            for name in names_of(ANNA, send, codec.record(send, after=START)).of_task:
                call = await engine.tasks.find_call(name.digest, remembered=timedelta(days=7))
                if call is not None:
                    assert call == (call.task, "echo", START, name.content)
                    found[text] = call.task
        assert found == {
            "open": "open",
            "open at another path": "open",
            "recent": "recent",
            "key": "key",
            "recent key": "recent key",
            "alias": "alias",
        }


async def test_a_task_stored_before_the_feed_of_tasks_changes_from_now_on(
    database: Path, clock: ManualClock, tmp_path: Path
) -> None:
    with closing(at_version(database, 13, tmp_path)) as db:
        for task in ("open", "refused"):
            row = {**OLD_TASK, "id": task, "updated": 0.0, "turn_params": b"{}", "state": "submitted", "last": 1}
            db.execute(f"insert into task ({', '.join(row)}) values ({', '.join('?' * len(row))})", tuple(row.values()))
        db.execute(
            "insert into event (place, kind, state, dialect, body) values ((1 << 24) + 1, 'task', 'submitted', '0.3', x'')"
        )
    async with SqliteEngine(database, clock) as engine:
        feed = engine.task_changes.follow(ANNA, after=0, idle=timedelta())
        assert await feed.stored() == []
        await append(engine, TaskId("open"), status(TaskState.WORKING), DONE, after=1)
        await engine.tasks.discard(TaskId("refused"))
        assert [(change.id, change.at) for change in await feed.live()] == [("open", 2), ("open", 3)]
        feed.stop()
    async with SqliteEngine(database, clock) as engine:
        feed = engine.task_changes.follow(ANNA, after=0, idle=timedelta())
        assert [(change.id, change.at) for change in await feed.stored()] == [("open", 2), ("open", 3)]
        feed.stop()


async def test_the_database_uses_a_write_ahead_log_and_full_sync(engine: SqliteEngine) -> None:
    def ask(db: sqlite3.Connection) -> list[object]:
        return [db.execute(f"pragma {name}").fetchone()[0] for name in ("journal_mode", "synchronous", "fullfsync")]

    assert await engine.writer.submit(ask) == ["wal", 2, 1]
