"""The write-ahead log is copied into the database on a separate thread, and stays short."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from hub.storage.sqlite.connections import checkpoints as module
from hub.storage.sqlite.connections.checkpoints import CHECKPOINT, Checkpoints
from tests.helpers.processes import wait_for

TIMEOUT = 30.0


class LogWriter:
    """A writer without automatic checkpoints. It makes one only when `request` was called."""

    def __init__(self, database: Path) -> None:
        self.database = database
        self.commits = 0
        self.requested = 0
        self.checkpoint_count = 0
        self.db = sqlite3.connect(database, isolation_level=None)
        # Power failures are not tested here: no commit waits for the disk.
        for pragma in ("journal_mode = wal", "wal_autocheckpoint = 0", "busy_timeout = 5000", "synchronous = off"):
            self.db.execute(f"pragma {pragma}")
        self.db.execute("create table filled (body blob)")

    def write(self, count: int) -> None:
        for _ in range(count):
            self.db.execute("insert into filled values (randomblob(3500))")
            self.commits += 1
            if self.requested:
                self.requested = 0
                self.db.execute(CHECKPOINT).fetchone()
                self.checkpoint_count += 1

    def request(self) -> None:
        self.requested += 1

    @property
    def restart_count(self) -> int:
        """How often the log was restarted: its header holds the count."""
        with self.database.with_name(self.database.name + "-wal").open("rb") as log:
            return int.from_bytes(log.read(16)[12:])

    def stored(self) -> int:
        """Rows in the database file without its log."""
        with closing(sqlite3.connect(f"file:{self.database}?immutable=1", uri=True)) as db:
            try:
                return int(db.execute("select count(*) from filled").fetchone()[0])
            except sqlite3.DatabaseError:
                return 0


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[LogWriter]:
    writer = LogWriter(tmp_path / "some.db")
    yield writer
    writer.db.close()


@pytest.fixture
def started() -> Iterator[Callable[[LogWriter], Checkpoints]]:
    running: list[Checkpoints] = []

    def start(writer: LogWriter) -> Checkpoints:
        running.append(Checkpoints(writer.database, lambda: writer.commits, writer.request, interval=0.01, restart_pages=100))
        running[-1].start()
        return running[-1]

    yield start
    for checkpoints in running:
        checkpoints.close()


def test_written_rows_reach_the_database_file(writer: LogWriter, started: Callable[[LogWriter], Checkpoints]) -> None:
    started(writer)
    writer.write(20)
    wait_for(lambda: writer.stored() == 20)


def test_a_log_that_is_written_all_the_time_is_restarted(
    writer: LogWriter, started: Callable[[LogWriter], Checkpoints]
) -> None:
    started(writer)
    until = time.monotonic() + TIMEOUT
    while min(writer.checkpoint_count, writer.restart_count) < 3:
        assert time.monotonic() < until, f"asked {writer.checkpoint_count} times, restarted {writer.restart_count} times"
        writer.write(1)
    wait_for(lambda: writer.stored() == writer.commits)


def test_a_checkpoint_goes_on_after_a_blocking_reader_ends(
    writer: LogWriter, started: Callable[[LogWriter], Checkpoints]
) -> None:
    writer.write(1)
    with closing(sqlite3.connect(writer.database, isolation_level=None)) as reader:
        reader.execute("begin")
        reader.execute("select count(*) from filled").fetchone()
        started(writer)
        writer.write(300)
        assert writer.stored() < 301
        reader.execute("commit")
    writer.write(1)
    wait_for(lambda: writer.stored() == 302)


def test_without_new_commits_there_is_no_checkpoint(writer: LogWriter, started: Callable[[LogWriter], Checkpoints]) -> None:
    writer.write(20)
    writer.commits = 0
    started(writer).close()
    assert writer.stored() == 0


class FailingConnection:
    """A connection whose first checkpoint fails."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._failures_left = 1

    def execute(self, sql: str) -> sqlite3.Cursor:
        if sql == CHECKPOINT and self._failures_left:
            self._failures_left -= 1
            raise sqlite3.OperationalError("disk I/O error")
        return self._db.execute(sql)

    def close(self) -> None:
        self._db.close()


def test_a_failed_checkpoint_is_logged_and_tried_again(
    writer: LogWriter,
    started: Callable[[LogWriter], Checkpoints],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    connect = sqlite3.connect
    monkeypatch.setattr(module.sqlite3, "connect", lambda *args, **kwargs: FailingConnection(connect(*args, **kwargs)))
    with caplog.at_level(logging.WARNING):
        started(writer)
        writer.write(10)
        wait_for(lambda: "checkpoint failed" in caplog.text)
    monkeypatch.undo()
    writer.write(10)
    wait_for(lambda: writer.stored() == 20)
