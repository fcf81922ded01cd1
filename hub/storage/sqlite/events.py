"""The event log of the SQLite engine."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import lru_cache
from typing import Any

from hub.ports.clock import Clock
from hub.ports.shares import Share
from hub.ports.state.event_log import LogEntry
from hub.storage.common.cached_task import CachedTask, Outcome, numbered
from hub.storage.common.log_tail import PAGE_BYTES, PAGE_EVENTS, LogFollower
from hub.storage.common.notifier import Notifier
from hub.storage.common.reserve import Reserve
from hub.storage.sqlite.cache import Cache
from hub.storage.sqlite.connections.readers import ListReaders, SqliteReader
from hub.storage.sqlite.connections.writer import Item, Writer
from hub.storage.sqlite.contents import LARGE, as_value, is_large, write_large
from hub.storage.sqlite.files import bind
from hub.storage.sqlite.pushes import mark_owed
from hub.storage.sqlite.tasks.changes import SqliteChanges, feed_of
from hub.storage.sqlite.tasks.counts import TaskCounts
from hub.storage.sqlite.tasks.rows import MEMBERS, row_of
from hub.storage.sqlite.usage import add_usage
from rolecall.errors import HubError, LogMoved, StoreUnavailable, TaskNotFound
from rolecall.model.a2a import Event, EventKind, Logged, TaskState
from rolecall.model.ids import START, Cursor, TaskId
from rolecall.model.value import replace

# An event's `place`: its task's key in the high bits, its cursor in the low bits.
CURSOR_BITS = 24
LAST_CURSOR = (1 << CURSOR_BITS) - 1

_COLUMNS = "place, kind, state, dialect, position, body, feed, revision"
_ADD = f"insert into event ({_COLUMNS}) values (?, ?, ?, ?, ?, ?, ?, nullif(?, 0))"
# Detects a second writer: it inserts nothing if the place is taken, or if the task is not an open one without webhooks (then
# the kind is null). The id is compared as well, because the key of a discarded task may be reused. A select in place of the
# values would make SQLite prepare to undo the statement alone.
_ADD_FIRST = f"""
insert or ignore into event ({_COLUMNS}) values (?, (
  select ? from task where key = ? and id = ? and idle_since is null and not pushes
), ?, ?, ?, ?, ?, nullif(?, 0))
"""
_KINDS = {str(kind): kind for kind in EventKind}
_STATES: dict[str | None, TaskState | None] = {None: None, "": None, **{str(state): state for state in TaskState}}
# Only numbers, plain strings and byte arrays: for any other type, None included, sqlite3 first searches for an adapter, which
# costs as much as the rest of an insert.
_KIND_TEXT = {kind: text for text, kind in _KINDS.items()}
_STATE_TEXT = {state: text or "" for text, state in _STATES.items()}
_READ = f"""
select place & {LAST_CURSOR}, kind, state, dialect, body from event
where place > (select key << {CURSOR_BITS} from task where id = ?1) + ?2
and place <= (select key << {CURSOR_BITS} from task where id = ?1) + ?3
order by place
"""
_LAST_EVENTS = f"""
select task.id, place & {LAST_CURSOR}, event.kind, event.state, event.dialect, body
from task join event on place = (task.key << {CURSOR_BITS}) + task.last where task.id in (%s) and length(body) <= ?
"""
# The sizes are read first, so that large events behind the page are not read in vain.
_PAGE = f"""
with own as (select key << {CURSOR_BITS} as base from task where id = ?1),
sizes as (
  select place, sum(length(body)) over (order by place) - length(body) as before from event
  where place > (select base from own) + ?2 and place <= (select base from own) + {LAST_CURSOR}
  order by place limit {PAGE_EVENTS}
)
select place & {LAST_CURSOR}, kind, state, dialect, body from event
where place > (select base from own) + ?2 and place <= (select max(place) from sizes where before < {PAGE_BYTES})
order by place
"""
_LOAD_TASK = f"""
select key, hidden, pushes, (select parent from branch where branch.task = key), {MEMBERS} from task_now where id = ?
"""
_ROW_BEHIND = 200
"""A stored task row may be this many events behind its log."""


_IDS = ("context", "worker_task", "worker_context")
"""An empty one does not replace a known one."""


_WITHOUT_PUSHES = " and not pushes"


@lru_cache(maxsize=64)
def _update(columns: tuple[str, ...], condition: str = "") -> str:
    """Detects a second writer as `_ADD_FIRST` does. Names only changed columns: SQLite rewrites the index of every column that
    an update names.
    """
    sets = ", ".join(f"{column} = ?" for column in columns)
    return f"""
    update task set {sets} where key = ? and id = ? and idle_since is null{condition}
    and not exists (select 1 from event where place >= ? and place <= ?)
    """


class SqliteLog:
    """`notifier` is notified of each append that a webhook receiver may be owed."""

    def __init__(
        self,
        writer: Writer,
        reader: SqliteReader,
        lists: ListReaders,
        cache: Cache,
        clock: Clock,
        notifier: Notifier,
        reserve: Reserve,
        disk: Share,
        changes: SqliteChanges,
        counts: TaskCounts,
    ) -> None:
        self.writer = writer
        self.clock = clock
        self.changes = changes
        self.counts = counts
        self._reader = reader
        self._lists = lists
        self._cache = cache
        self._notifier = notifier
        self.reserve = reserve
        self._disk = disk
        self._loading: set[asyncio.Task[None]] = set()

    def open(self, task: TaskId) -> SqliteOpenLog:
        return SqliteOpenLog(self, task, self._cache.find(task))

    async def read(self, task: TaskId, *, after: Cursor = START, upto: Cursor | None = None) -> Sequence[Logged]:
        cached = self._cache.find(task)
        if cached is not None and cached.covers(after):
            return cached.since(after, upto)
        last = LAST_CURSOR if upto is None else min(upto, LAST_CURSOR)
        return _logged(await self._reader.rows(_READ, (task, after, last)))

    async def last_events(self, tasks: Sequence[TaskId], *, largest: int) -> Mapping[TaskId, Logged]:
        found = await self._lists.rows(_LAST_EVENTS % ", ".join("?" * len(tasks)), [*tasks, largest])
        return {TaskId(task): _logged((tuple(members),))[0] for task, *members in found}

    def follow(self, task: TaskId, *, after: Cursor, idle: timedelta) -> LogFollower:
        return LogFollower(self, task, self._cache.find(task), after=after, idle=idle)

    async def tail(self, task: TaskId) -> CachedTask:
        return await self._cache.load(task, self._read_task)

    async def page(self, task: TaskId, after: Cursor) -> Sequence[Logged]:
        return _logged(await self._reader.rows(_PAGE, (task, after)))

    async def close(self) -> None:
        """End the appends that wait until their task has been read."""
        for loading in tuple(self._loading):
            loading.cancel()
        await asyncio.gather(*self._loading, return_exceptions=True)

    # --- for open logs

    def find(self, task: TaskId) -> CachedTask | None:
        return self._cache.find(task)

    def load(self, task: TaskId, then: Callable[[CachedTask | HubError], None]) -> None:
        """Read a task that is not in memory."""
        loading = asyncio.create_task(self._load(task, then), name=f"reading task {task}")
        self._loading.add(loading)
        loading.add_done_callback(self._loading.discard)

    def publish(self, append: _Append, stored_end: Cursor) -> None:
        """Show a committed append to readers. `stored_end`: the end that the task's stored row now includes."""
        cached = append.cached
        dropped = cached.closed
        if not dropped:
            cached.stored_end = stored_end
            cached.advance(append.entry, append.logged, append.effect, append.now)
            self._disk.fill(cached.workspace, append.effect.size)
            if append.changed:
                self.changes.publish_events(cached, append.changed)
        self._cache.on_append(cached, dropped=dropped)
        if cached.pushes or dropped:
            self._notifier.notify()

    async def _load(self, task: TaskId, then: Callable[[CachedTask | HubError], None]) -> None:
        try:
            cached = await self.tail(task)
        except TaskNotFound:
            then(LogMoved())
        except StoreUnavailable as error:
            then(error)
        else:
            then(cached)

    async def _read_task(self, task: TaskId) -> CachedTask:
        rows = await self._reader.rows(_LOAD_TASK, (task,))
        if not rows:
            raise TaskNotFound
        key, hidden, pushes, parent, *members = rows[0]
        return CachedTask(row_of(members), None, key=key, hidden=bool(hidden), pushes=bool(pushes), parent=parent)


class SqliteOpenLog:
    """Keeps its task in memory while it is open."""

    __slots__ = ("_cached", "_log", "_task")

    def __init__(self, log: SqliteLog, task: TaskId, cached: CachedTask | None) -> None:
        self._log = log
        self._task = task
        self._cached = cached

    def append(self, entry: LogEntry, *, after: Cursor, done: Callable[[HubError | None], None]) -> None:
        cached = self._cached or self._log.find(self._task)
        if cached is None:
            self._log.load(self._task, lambda found: self._loaded(found, entry, after, done))
            return
        self._cached = cached
        if cached.closed or cached.end != after or after + len(entry.events) > LAST_CURSOR:
            asyncio.get_running_loop().call_soon(done, LogMoved())
            return
        try:
            if not self._log.reserve.takes(entry.events):
                raise StoreUnavailable
            self._log.writer.enqueue(_Append(self._log, cached, entry, done))
        except StoreUnavailable as error:
            asyncio.get_running_loop().call_soon(done, error)

    def _loaded(
        self, found: CachedTask | HubError, entry: LogEntry, after: Cursor, done: Callable[[HubError | None], None]
    ) -> None:
        if isinstance(found, HubError):
            done(found)
        else:
            self._cached = found
            self.append(entry, after=after, done=done)


class _Append(Item):
    """One append on its way to the disk. `stored_end`, the result of `work`, is None if another writer was first."""

    __slots__ = (
        "_done",
        "_end",
        "_log",
        "_only_events",
        "_row",
        "_row_change",
        "cached",
        "changed",
        "effect",
        "entry",
        "logged",
        "now",
    )
    short = True

    def __init__(self, log: SqliteLog, cached: CachedTask, entry: LogEntry, done: Callable[[HubError | None], None]) -> None:
        if entry.position is None and cached.position is not None:
            entry = replace(entry, position=cached.position)  # only the last event's position is read
        self.cached = cached
        self.entry = entry
        self.logged, self.effect = numbered(entry.events, cached.end, cached.state)
        self.changed: Sequence[tuple[int, Logged]] = ()
        """With their revisions."""
        self.size = self.effect.size
        self.task, self.workspace = cached.task, cached.workspace
        self.now = log.clock.wall()
        self._log = log
        self._done = done
        self._end = Cursor(cached.end + len(self.logged))
        needs_row = self.effect.state is not None or entry.ids is not None or cached.pushes or not self.logged
        self._row = cached.row if entry.usage else None
        self._only_events = not needs_row and self._row is None and self._end - cached.stored_end < _ROW_BEHIND
        self._row_change: tuple[tuple[str, ...], Sequence[Any]] | None = None

    def work(self, db: sqlite3.Connection) -> Cursor | None:
        stored_end = self._store(db)
        if stored_end is not None and self.entry.files:
            bind(db, self.cached.key, self.entry.files)
        return stored_end

    def _store(self, db: sqlite3.Connection) -> Cursor | None:
        cached = self.cached
        if self._only_events and self._add_events(db, fenced=True):
            return cached.stored_end
        if not self._change_row(db):
            return None
        if self.logged:
            self._add_events(db, fenced=False)
        if self._row is not None:
            add_usage(db, cached.key, self._row, self.entry.usage, self.now)
        if self.effect.hidden:
            self._log.counts.add(cached.caller, cached.row.role, -1)
        return self._end

    def _change_row(self, db: sqlite3.Connection) -> bool:
        """False: another writer was first."""
        cached = self.cached
        if self._row_change is None:
            self._row_change = _row_change(cached, self.entry, self.effect, self._end, self.now)
        columns, values = self._row_change
        if not cached.pushes and db.execute(_update(columns, _WITHOUT_PUSHES), values).rowcount == 1:
            return True
        if db.execute(_update(columns), values).rowcount != 1:
            return False
        if not self.effect.hidden:
            mark_owed(db, cached.key, self._end, self.now)
        return True

    def settle(self) -> None:
        published = False
        try:
            if self.error is None and self.result is not None:
                self._log.publish(self, self.result)
                published = True
        finally:
            self._done(None if published else self._failure())

    def _add_events(self, db: sqlite3.Connection, *, fenced: bool) -> bool:
        """Insert all events, or none. True: inserted. The worker's position is stored with the last one."""
        cached, changes = self.cached, self.effect.changes
        rows: list[tuple[Any, ...]] = []  # an empty list[…]() would take a µs
        changed: list[tuple[int, Logged]] = []
        base, position = cached.key << CURSOR_BITS, self.entry.position or ""
        for logged in self.logged:
            cursor, event = logged.cursor, logged.event
            held, body = position if cursor == self._end else "", as_value(event.body)
            feed = revision = 0
            if changes and logged in changes:
                feed, revision = feed_of(cached.caller), self._log.changes.next_revision()
                changed.append((revision, logged))
            kind, state = _KIND_TEXT[event.kind], _STATE_TEXT[event.state]
            rows.append((base + cursor, kind, state, event.dialect, held, body, feed, revision))
        self.changed = changed
        if fenced:
            (place, kind, *rest), *rows = rows
            if db.execute(_ADD_FIRST, (place, kind, cached.key, cached.task, *rest)).rowcount != 1:
                return False
        if len(rows) == 1:
            db.execute(_ADD, rows[0])
        elif rows:
            db.executemany(_ADD, rows)
        if self.size > LARGE:
            for logged in self.logged:
                if is_large(logged.event.body):
                    write_large(db, "event", "body", base + logged.cursor, logged.event.body)
        return True

    def _failure(self) -> HubError:
        if self.error is None and self.result is None:
            return LogMoved()
        failure = StoreUnavailable()
        failure.__cause__ = self.error
        return failure


def _row_change(
    cached: CachedTask, entry: LogEntry, effect: Outcome, end: Cursor, now: float
) -> tuple[tuple[str, ...], Sequence[Any]]:
    """The columns and the values of the update that brings the task's row up to `end`."""
    row_change: dict[str, Any] = {"last": end, "size": cached.logged + effect.size, "written": now}
    if entry.position is not None:
        row_change["position"] = entry.position
    if effect.state is not None:
        row_change |= {"state": _STATE_TEXT[effect.state], "updated": now}
    if effect.terminal:
        row_change |= {"idle_since": now, "hidden": effect.hidden}
    if entry.ids is not None:
        row = cached.row
        for name in _IDS:
            known = getattr(entry.ids, name)
            if known and known != getattr(row, name):
                row_change[name] = known
    base = cached.key << CURSOR_BITS
    return tuple(row_change), (*row_change.values(), cached.key, cached.task, base + cached.end + 1, base + end + 1)


def _logged(rows: Sequence[tuple[Any, ...]]) -> list[Logged]:
    return [Logged(Cursor(at), Event(_KINDS[kind], _STATES[state], dialect, body)) for at, kind, state, dialect, body in rows]
