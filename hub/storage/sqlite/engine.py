"""The SQLite engine: one file, one process, one writer."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import AsyncExitStack
from pathlib import Path

from hub.ports.clock import Clock
from hub.ports.shares import Share, Unlimited
from hub.ports.state.engine import DiskRoom
from hub.storage.common.file_bytes import FileBytes
from hub.storage.common.notifier import Notifier
from hub.storage.common.reserve import Reserve
from hub.storage.sqlite.cache import Cache
from hub.storage.sqlite.connections.checkpoints import CHECKPOINT, FULL_SYNC, Checkpoints
from hub.storage.sqlite.connections.database import FileLock, migrate, prepare
from hub.storage.sqlite.connections.readers import ListReaders, SqliteReader
from hub.storage.sqlite.connections.writer import BUSY_MILLIS, Writer
from hub.storage.sqlite.events import SqliteLog
from hub.storage.sqlite.files import SqliteFiles
from hub.storage.sqlite.pushes import SqlitePushes
from hub.storage.sqlite.registry import SqliteRegistry
from hub.storage.sqlite.summaries import SqliteSummaries
from hub.storage.sqlite.tasks.changes import SqliteChanges
from hub.storage.sqlite.tasks.counts import TaskCounts
from hub.storage.sqlite.tasks.store import SqliteTasks
from hub.storage.sqlite.usage import SqliteUsage
from rolecall.errors import StoreError

_PRAGMAS = (
    "journal_mode = wal",
    "synchronous = full",
    FULL_SYNC,
    "temp_store = memory",
    "journal_size_limit = 67108864",
    "cache_size = -16000",  # KiB, allocated on use: the pages of about a thousand open tasks
    "wal_autocheckpoint = 16000",  # pages: a fallback, the checkpoint thread acts much earlier
)


class SqliteEngine:
    def __init__(
        self, database: Path, clock: Clock, *, cache: Cache | None = None, disk_reserve: int = 0, disk: Share | None = None
    ) -> None:
        """The bytes of files are in a folder beside the database, which is the database's alone."""
        disk = disk or Unlimited()
        cache = Cache() if cache is None else cache
        self._database = database
        self._lock = FileLock(database)
        self._reserve = reserve = Reserve(database, disk_reserve)
        counts = TaskCounts()
        self._writer = Writer(self._connect, make_room=self._make_room, counts=counts)
        self._reader = SqliteReader(database)
        self._list_readers = ListReaders(database, self._writer.settled)
        self._checkpoints = Checkpoints(database, lambda: self._writer.commits, self._restart_log, look=reserve.look)
        self.registry = SqliteRegistry(clock, self._writer, self._reader, reserve)
        notifier = Notifier()
        self.pushes = SqlitePushes(self._writer, self._reader, cache, clock, notifier)
        self.task_changes = changes = SqliteChanges(clock, self._list_readers)
        self.tasks = SqliteTasks(
            self._writer, self._reader, self._list_readers, cache, clock, self.pushes, reserve, disk, changes, counts
        )
        self.usage = SqliteUsage(self._writer, self._reader, self._list_readers, clock)
        self.summaries = SqliteSummaries(self._writer, self._list_readers, clock, disk)
        self.events = SqliteLog(
            self._writer, self._reader, self._list_readers, cache, clock, notifier, reserve, disk, changes, counts
        )
        self._folder = FileBytes(database.with_name(database.name + "-files"), reserve=disk_reserve, has_room=reserve.has_room)
        self.files = SqliteFiles(self._folder, self._writer, self._reader, self._list_readers, clock, reserve, disk)
        self._restarted_at = -1
        """The commits until the write-ahead log was restarted for room."""
        self._undo = AsyncExitStack()

    @property
    def writer(self) -> Writer:
        """For maintenance and diagnosis: statements that no port has."""
        return self._writer

    @property
    def reader(self) -> SqliteReader:
        return self._reader

    async def __aenter__(self) -> SqliteEngine:
        async with AsyncExitStack() as undo:
            await asyncio.to_thread(prepare, self._database)
            self._lock.acquire()
            self._loop = asyncio.get_running_loop()
            undo.callback(self._lock.release)
            try:
                await self._writer.start()
            except sqlite3.Error as error:
                raise StoreError(
                    f"{self._database} is not a database that this hub can use: {error}. "
                    "Restore a backup, or use another data directory."
                ) from error
            undo.push_async_callback(self._writer.close)
            await asyncio.to_thread(self._reserve.open)
            undo.callback(self._reserve.close)
            self._checkpoints.start()
            undo.push_async_callback(asyncio.to_thread, self._checkpoints.close)
            await self._reader.start()
            undo.push_async_callback(self._reader.close)
            self._list_readers.start()
            undo.push_async_callback(self._list_readers.close)
            undo.push_async_callback(self.events.close)
            self._folder.start()
            undo.push_async_callback(self._folder.close)
            await self.tasks.load()
            await self.files.load()
            await self.summaries.load()
            await self.task_changes.load()
            await self.registry.load()
            await self.pushes.load()
            self._undo = undo.pop_all()
        return self

    async def __aexit__(self, *exc: object) -> None:
        async with self._undo:
            await self.registry.sweep()

    async def ping(self) -> None:
        self._reserve.check()
        await self._writer.submit(_write_something)

    def disk_room(self) -> DiskRoom:
        return self._reserve.room

    def _restart_log(self) -> None:
        """Called on the checkpoint thread."""
        self._loop.call_soon_threadsafe(self._writer.between, lambda db: db.execute(CHECKPOINT).fetchone())

    def _make_room(self, db: sqlite3.Connection) -> bool:
        """On the writer's thread, after a write found the disk full. The reserve gives a piece, in which the database can grow
        by what is in the write-ahead log. Then the log is written over from its beginning, and needs no more room for long.
        False: there is none.
        """
        given, commits = self._reserve.make_room(), self._writer.commits
        if not given and commits == self._restarted_at:
            return False
        self._restarted_at = commits
        try:
            busy, log_pages, copied = db.execute("pragma wal_checkpoint(restart)").fetchone()
        except sqlite3.Error:
            return given
        return given or (not busy and log_pages == copied)

    def _connect(self) -> sqlite3.Connection:
        """The writer's connection, opened on its thread. A commit is on disk before it is acknowledged."""
        db = sqlite3.connect(
            self._database, isolation_level=None, timeout=BUSY_MILLIS / 1000, cached_statements=256, check_same_thread=False
        )
        try:
            for pragma in _PRAGMAS:
                db.execute(f"pragma {pragma}")
            migrate(db)
            # Changes made on the loop stay in memory until the thread commits them, and the loop never waits for a lock.
            db.execute("pragma cache_spill = off")
            db.execute("pragma busy_timeout = 0")
        except (sqlite3.Error, StoreError):
            db.close()
            raise
        return db


def _write_something(db: sqlite3.Connection) -> None:
    db.execute("insert or replace into meta (name, value) values ('ping', 0)")
