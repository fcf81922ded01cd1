"""The rows of files of the SQLite engine; their bytes are in a folder beside the database."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Collection, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from hub.ports.clock import Clock
from hub.ports.shares import Share
from hub.storage.common.file_bytes import FileBytes
from hub.storage.common.reserve import Reserve
from hub.storage.common.upload import FileUpload
from hub.storage.sqlite.connections.readers import ListReaders, SqliteReader
from hub.storage.sqlite.connections.writer import Writer
from rolecall.errors import FileNotFound, TaskNotFound
from rolecall.model.ids import Caller, FileId, TaskId, WorkerId
from rolecall.model.task import FILE_SIZE, Holder, StoredFile

log = logging.getLogger(__name__)

SWEEP_FILES = 50
"""That one call of `sweep` deletes."""
_TASKS_OF_FILE = 1_000
"""Tasks of a file that are looked at."""
_MEMBERS = "id, workspace, caller, name, media_type, length, stored, sha256, changed, tasks, lost"
_CREATE = """
insert into file (id, workspace, caller, name, media_type, length, stored, sha256, changed) values (?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_STORE = "update file set stored = ?, length = ?, sha256 = ?, changed = ? where id = ?"
# Only tasks of its owner may have it.
_MAY = "file.workspace = task.workspace and file.caller = task.caller"
_KNOWN = "file.changed > 0 and not file.lost"
"""Not one whose last task is gone: it only has to be deleted."""
_BIND_FOUND = f"insert or ignore into task_file (file, task) select file.key, task.key from file join task on {_MAY}"
_BIND = f"{_BIND_FOUND} where file.id = ? and task.key = ? and {_KNOWN}"
_BIND_COMPLETE = f"{_BIND} and sha256 <> ''"
_MAY_BIND = f"select 1 from file join task on {_MAY} where file.id = ? and task.key = ? and {_KNOWN} and sha256 <> ''"
_BOUND = "update file set tasks = tasks + 1 where id = ?"
_UNBIND = """
update file set tasks = tasks - 1, changed = case tasks when 1 then ?2 else changed end
where key in (select file from task_file where task = ?1)
"""
_WORKERS = f"""
select distinct workspace, worker, epoch from task join (
  select task from task_file where file = (select key from file where id = ?) order by task desc limit {_TASKS_OF_FILE}
) as has on task.key = has.task where worker is not null
"""
_FILES_OF = f"""
select {_MEMBERS} from task_file join file on file.key = task_file.file
where task_file.task = (select key from task where id = ?) order by file.key limit ?
"""
_UNUSED = "(tasks = 0 or sha256 = '')"
"""In the words of the index file_unused, or SQLite does not use it."""
_HAS = """
select 1 from task_file where file = (select key from file where id = ?) and task = (select key from task where id = ?)
"""
_OLD = f"select id, changed from file where {_UNUSED} and changed <= ? order by changed limit ?"
_OF_OWNER = "select id from file where workspace = ? and caller = ? and tasks = 0 limit ?"
_DELETE = f"delete from file where id = ? and {{}} returning key, workspace, {FILE_SIZE} + max(stored, coalesce(length, 0))"
_DELETE_UNUSED = _DELETE.format(_UNUSED)
_DELETE_OLD = _DELETE.format(f"{_UNUSED} and changed <= ?")
_SIZES = f"select workspace, sum({FILE_SIZE} + max(stored, coalesce(length, 0))) from file group by workspace"
_LOST = "update file set lost = 1, length = 0, stored = 0 where id = ?"
"""Of a row that is counted after that only."""


class SqliteFiles:
    def __init__(
        self,
        folder: FileBytes,
        writer: Writer,
        reader: SqliteReader,
        lists: ListReaders,
        clock: Clock,
        reserve: Reserve,
        disk: Share,
    ) -> None:
        self._folder = folder
        self._writer = writer
        self._reader = reader
        self._lists = lists
        self._clock = clock
        self._reserve = reserve
        self._disk = disk

    async def create(self, file: StoredFile, *, task: TaskId | None = None) -> None:
        self._reserve.check()
        await self._folder.check_room(file.length or 0)
        workspace, counted = file.owner.workspace, file.counted
        self._disk.take(workspace, counted)

        def write(db: sqlite3.Connection) -> bool:
            found = db.execute("select key from task where id = ?", (task,)).fetchone() if task is not None else None
            if task is not None and found is None:
                return False
            values = (file.name, file.media_type, file.length, file.offset, file.sha256, file.changed)
            db.execute(_CREATE, (file.id, *file.owner, *values))
            if found is not None:
                bind(db, found[0], [file.id], sql=_BIND)
            return True

        def publish(created: bool) -> None:
            if created:
                self._disk.fill(workspace, counted)

        try:
            if not await self._writer.submit(write, publish, short=True):
                raise TaskNotFound
        finally:
            self._disk.give_back(workspace, counted)

    async def get(self, file: FileId) -> StoredFile:
        rows = await self._reader.rows(f"select {_MEMBERS} from file where id = ?", (file,))
        if not rows:
            raise FileNotFound
        return _file_of(rows[0])

    def open(self, file: StoredFile) -> FileUpload:
        return FileUpload(file, self._folder, self._disk, self._clock, self._store)

    async def read(self, file: FileId, offset: int, size: int) -> bytes:
        return await self._folder.read(file, offset, size)

    async def workers(self, file: FileId) -> Sequence[Holder]:
        rows = await self._reader.rows(_WORKERS, (file,))
        return [Holder(workspace, WorkerId.of(worker), epoch) for workspace, worker, epoch in rows]

    async def files_of(self, task: TaskId, *, limit: int) -> Sequence[StoredFile]:
        return [_file_of(row) for row in await self._reader.rows(_FILES_OF, (task, limit))]

    async def has(self, task: TaskId, file: FileId) -> bool:
        return bool(await self._reader.rows(_HAS, (file, task)))

    async def delete(self, file: FileId) -> bool:
        return bool(await self._delete([file], _DELETE_UNUSED))

    async def sweep(self, *, unused_for: timedelta, keep: Collection[FileId] = ()) -> int:
        before = self._clock.wall() - unused_for.total_seconds()
        rows = await self._reader.rows(_OLD, (before, SWEEP_FILES + len(keep)))
        old = [FileId(file) for file, changed in rows if not changed or file not in keep][:SWEEP_FILES]
        return len(await self._delete(old, _DELETE_OLD, before)) if old else 0

    async def erase_of(self, owner: Caller, *, keep: Collection[FileId] = ()) -> int:
        rows = await self._reader.rows(_OF_OWNER, (*owner, SWEEP_FILES + len(keep)))
        own = [FileId(file) for (file,) in rows if file not in keep][:SWEEP_FILES]
        return len(await self._delete(own, _DELETE_UNUSED)) if own else 0

    async def load(self) -> None:
        """Compare the rows with the bytes that are there, and count them."""
        lost = 0
        with_rows = await self._lists.rows("select distinct substr(id, 1, 2) from file")
        for shard in sorted({*await self._folder.shards(), *(shard for (shard,) in with_rows)}):
            rows = await self._lists.rows("select id, stored from file where id >= ? and id < ?", (shard, shard + "g"))
            there = await self._folder.delete_unknown(shard, {FileId(file) for file, _ in rows})
            for file, stored in rows:
                if stored and file not in there:
                    await self._writer.submit(partial(_lose, file=file), short=True)
                    lost += 1
        if lost:
            log.error("the bytes of files are missing", extra={"event": "files_lost", "count": lost})
        for workspace, size in await self._lists.rows(_SIZES):
            self._disk.fill(workspace, size)

    async def _store(self, file: StoredFile) -> None:
        values = (file.offset, file.length, file.sha256, file.changed, file.id)

        def write(db: sqlite3.Connection) -> int | None:
            """By how much more it counts. None: it is gone."""
            found = db.execute(f"select stored, length from file where id = ? and {_KNOWN}", (file.id,)).fetchone()
            if found is None:
                return None
            db.execute(_STORE, values)
            before: int = max(found[0], found[1] or 0)
            return max(file.offset, file.length or 0) - before

        def publish(grown: int | None) -> None:
            if grown:
                self._disk.fill(file.owner.workspace, grown)

        if await self._writer.submit(write, publish, short=True) is None:
            await self._folder.delete(file.id)
            raise FileNotFound

    async def _delete(self, files: Sequence[FileId], sql: str, *values: Any) -> list[FileId]:
        """The rows, then the bytes. Those that are not deleted do not fit the condition any more."""

        def write(db: sqlite3.Connection) -> list[tuple[FileId, str, int]]:
            gone = []
            for file in files:
                found = db.execute(sql, (file, *values)).fetchone()
                if found is not None:
                    key, workspace, counted = found
                    db.execute("delete from task_file where file = ?", (key,))
                    gone.append((file, workspace, counted))
            return gone

        def publish(gone: list[tuple[FileId, str, int]]) -> None:
            for _, workspace, counted in gone:
                self._disk.give_back(workspace, counted)

        gone = [file for file, _, _ in await self._writer.submit(write, publish, short=True)]
        await self._folder.delete(*gone)
        return gone


def can_bind(db: sqlite3.Connection, task: int, files: Sequence[FileId]) -> bool:
    """Whether `bind` would pass over none of them."""
    return all(db.execute(_MAY_BIND, (file, task)).fetchone() for file in files)


def bind(db: sqlite3.Connection, task: int, files: Sequence[FileId], *, sql: str = _BIND_COMPLETE) -> None:
    """The task, by its key, has these files from now on: those that are complete, and its caller's."""
    for file in files:
        if db.execute(sql, (file, task)).rowcount:
            db.execute(_BOUND, (file,))


def unbind(db: sqlite3.Connection, task: int, changed: float) -> None:
    """The task, by its key, goes. `changed`: from when on a file that it was the last to have counts as unused."""
    db.execute(_UNBIND, (task, changed))
    db.execute("delete from task_file where task = ?", (task,))


def _lose(db: sqlite3.Connection, file: FileId) -> None:
    db.execute(_LOST, (file,))


def _file_of(members: Sequence[Any]) -> StoredFile:
    file, workspace, caller, name, media_type, length, stored, sha256, changed, tasks, lost = members
    about = (name, media_type, length, stored, sha256, changed)
    return StoredFile(FileId(file), Caller(workspace, caller), *about, bound=bool(tasks), lost=bool(lost))
