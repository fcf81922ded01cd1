"""The write-ahead log is moved into the database beside the writer, and stays short."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from hub.storage.sqlite import checkpoints as module
from hub.storage.sqlite.checkpoints import CHECKPOINT, Checkpoints
from tests.helpers.processes import wait_for

PATIENCE = 30.0


class Writing:
    """A writer that leaves checkpoints to others, but for the last pages of one."""

    def __init__(self, database: Path) -> None:
        self.database = database
        self.commits = 0
        self.asked = 0
        self.answered = 0
        self.db = sqlite3.connect(database, isolation_level=None)
        # A machine that fails is not what is tested here: no commit waits for the disk.
        for pragma in ("journal_mode = wal", "wal_autocheckpoint = 0", "busy_timeout = 5000", "synchronous = off"):
            self.db.execute(f"pragma {pragma}")
        self.db.execute("create table filled (body blob)")

    def write(self, pages: int) -> None:
        for _ in range(pages):
            self.db.execute("insert into filled values (randomblob(3500))")
            self.commits += 1
            if self.asked:
                self.asked = 0
                self.db.execute(CHECKPOINT).fetchone()
                self.answered += 1

    def ask(self) -> None:
        self.asked += 1

    @property
    def begun_anew(self) -> int:
        """How often the log was: its header counts that."""
        with self.database.with_name(self.database.name + "-wal").open("rb") as log:
            return int.from_bytes(log.read(16)[12:])

    def stored(self) -> int:
        """Rows that the database file has by itself."""
        with closing(sqlite3.connect(f"file:{self.database}?immutable=1", uri=True)) as db:
            try:
                return int(db.execute("select count(*) from filled").fetchone()[0])
            except sqlite3.DatabaseError:
                return 0


@pytest.fixture
def writing(tmp_path: Path) -> Iterator[Writing]:
    writing = Writing(tmp_path / "some.db")
    yield writing
    writing.db.close()


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Writing], Checkpoints]]:
    monkeypatch.setattr(module, "_EVERY", 0.01)
    monkeypatch.setattr(module, "_LONG", 100)
    running: list[Checkpoints] = []

    def start(writing: Writing) -> Checkpoints:
        running.append(Checkpoints(writing.database, lambda: writing.commits, writing.ask))
        running[-1].start()
        return running[-1]

    yield start
    for checkpoints in running:
        checkpoints.close()


def test_what_is_written_gets_into_the_database(writing: Writing, started: Callable[[Writing], Checkpoints]) -> None:
    started(writing)
    writing.write(20)
    wait_for(lambda: writing.stored() == 20)


def test_a_log_that_is_always_written_to_is_begun_anew(writing: Writing, started: Callable[[Writing], Checkpoints]) -> None:
    started(writing)
    until = time.monotonic() + PATIENCE
    while min(writing.answered, writing.begun_anew) < 3:
        assert time.monotonic() < until, f"asked {writing.answered} times, begun anew {writing.begun_anew} times"
        writing.write(1)
    wait_for(lambda: writing.stored() == writing.commits)


def test_a_reader_in_the_way_is_not_waited_for_forever(writing: Writing, started: Callable[[Writing], Checkpoints]) -> None:
    writing.write(1)
    with closing(sqlite3.connect(writing.database, isolation_level=None)) as reader:
        reader.execute("begin")
        reader.execute("select count(*) from filled").fetchone()
        started(writing)
        writing.write(300)
        assert writing.stored() < 301
        reader.execute("commit")
    writing.write(1)
    wait_for(lambda: writing.stored() == 302)


def test_without_new_commits_nothing_is_looked_at(writing: Writing, started: Callable[[Writing], Checkpoints]) -> None:
    writing.write(20)
    writing.commits = 0
    started(writing).close()
    assert writing.stored() == 0


class Failing:
    """A connection whose first checkpoint fails."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._left = 1

    def execute(self, sql: str) -> sqlite3.Cursor:
        if sql == CHECKPOINT and self._left:
            self._left -= 1
            raise sqlite3.OperationalError("disk I/O error")
        return self._db.execute(sql)

    def close(self) -> None:
        self._db.close()


def test_a_checkpoint_that_fails_is_told_and_tried_again(
    writing: Writing,
    started: Callable[[Writing], Checkpoints],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    connect = sqlite3.connect
    monkeypatch.setattr(module.sqlite3, "connect", lambda *where, **how: Failing(connect(*where, **how)))
    with caplog.at_level(logging.WARNING):
        started(writing)
        writing.write(10)
        wait_for(lambda: "no checkpoint" in caplog.text)
    monkeypatch.undo()
    writing.write(10)
    wait_for(lambda: writing.stored() == 20)
