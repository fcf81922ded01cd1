"""The event log of the SQLite engine."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import timedelta
from functools import lru_cache
from typing import Any

from hub.ports.clock import Clock
from hub.ports.event_log import LogEntry
from hub.storage.common.cached_task import CachedTask, Outcome, numbered, outcome, with_ids
from hub.storage.common.log_tail import PAGE_BYTES, PAGE_EVENTS, LogFollower, LogTail
from hub.storage.common.notifier import Notifier
from hub.storage.sqlite.cache import Cache
from hub.storage.sqlite.reader import SqliteReader
from hub.storage.sqlite.tasks import MEMBERS, row_of
from hub.storage.sqlite.writer import Writer
from rolecall.errors import LogMoved, TaskNotFound
from rolecall.model.a2a import Event, EventKind, Logged, TaskState
from rolecall.model.ids import START, Cursor, TaskId
from rolecall.model.value import replace

# An event's `place`: its task's key in the high bits, its cursor in the low bits.
CURSOR_BITS = 24
LAST_CURSOR = (1 << CURSOR_BITS) - 1

_COLUMNS = "place, kind, state, dialect, position, body"
_ADD = f"insert into event ({_COLUMNS}) values (?, ?, ?, ?, ?, ?)"
# Detects a second writer: the first event of an append needs a free place, of an open task. The id is compared as well, because
# the key of a discarded task may be reused.
_ADD_FIRST = f"""
insert into event ({_COLUMNS}) select ?, ?, ?, ?, ?, ? from task where key = ? and id = ? and idle_since is null %s
on conflict do nothing
"""
_ADD_EVENTS_ONLY = _ADD_FIRST % "and not pushes"
_ADD_FIRST = _ADD_FIRST % ""
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
_LOAD_TASK = f"select key, hidden, pushes, {MEMBERS} from task_now where id = ?"
_ROW_BEHIND = 200
"""A stored task row may be this many events behind its log."""


_IDS = ("context", "worker_task", "worker_context")


@lru_cache(maxsize=64)
def _update(columns: tuple[str, ...]) -> str:
    """Names only changed columns: SQLite rewrites the index of every column that an update names."""
    sets = ", ".join(f"{column} = ?" for column in columns)
    return f"""
    update task set {sets} where key = ? and id = ? and idle_since is null
    and not exists (select 1 from event where place = ?)
    """


class SqliteLog:
    """`notifier` is notified of each append that a webhook receiver may be owed."""

    def __init__(self, writer: Writer, reader: SqliteReader, cache: Cache, clock: Clock, notifier: Notifier) -> None:
        self._writer = writer
        self._reader = reader
        self._cache = cache
        self._clock = clock
        self._notifier = notifier

    async def append(self, task: TaskId, entry: LogEntry, *, after: Cursor) -> Cursor:
        cached = await self._find_or_load(task)
        end = Cursor(after + len(entry.events))
        if cached is None or cached.closed or cached.end != after or end > LAST_CURSOR:
            raise LogMoved
        now, effect, logged = self._clock.wall(), outcome(entry.events), numbered(entry.events, after)
        if entry.position is None and cached.position is not None:
            entry = replace(entry, position=cached.position)  # only the last event's position is read
        events = _rows(cached.key, logged, entry.position)
        needs_row = effect.state is not None or entry.ids is not None or cached.pushes or not events
        events_only = not needs_row and end - cached.stored_end < _ROW_BEHIND
        row_change = None if events_only else _row_change(cached, entry, effect, end, now)

        def write(db: sqlite3.Connection) -> Cursor | None:
            """The end that the task's row now includes. None: another writer was first."""
            if events_only and _add_all(db, _ADD_EVENTS_ONLY, events, cached):
                return cached.stored_end
            if events and not _add_all(db, _ADD_FIRST, events, cached):
                return None
            return end if db.execute(*(row_change or _row_change(cached, entry, effect, end, now))).rowcount == 1 else None

        def publish(stored_end: Cursor | None) -> None:
            if stored_end is None:
                return
            known = self._cache.on_write(task)
            if known is not None:
                known.advance(entry, logged, effect, now)
                known.stored_end = stored_end
                self._cache.keep(task, known)
            if known is None or known.pushes:
                self._notifier.notify()

        if await self._writer.submit(write, publish, short=True) is None:
            raise LogMoved
        return end

    async def read(self, task: TaskId, *, after: Cursor = START, upto: Cursor | None = None) -> Sequence[Logged]:
        cached = self._cache.find(task)
        if cached is not None and cached.covers(after):
            return cached.since(after, upto)
        last = LAST_CURSOR if upto is None else min(upto, LAST_CURSOR)
        return _logged(await self._reader.rows(_READ, (task, after, last)))

    def follow(self, task: TaskId, *, after: Cursor, idle: timedelta) -> LogFollower:
        return LogFollower(self, task, self._cache.find(task), after=after, idle=idle)

    async def tail(self, task: TaskId) -> LogTail:
        return await self._cache.load(task, self._read_task)

    async def page(self, task: TaskId, after: Cursor) -> Sequence[Logged]:
        return _logged(await self._reader.rows(_PAGE, (task, after)))

    async def _find_or_load(self, task: TaskId) -> CachedTask | None:
        try:
            return self._cache.find(task) or await self._cache.load(task, self._read_task)
        except TaskNotFound:
            return None

    async def _read_task(self, task: TaskId) -> CachedTask:
        rows = await self._reader.rows(_LOAD_TASK, (task,))
        if not rows:
            raise TaskNotFound
        key, hidden, pushes, *members = rows[0]
        return CachedTask(row_of(members), None, key=key, hidden=bool(hidden), pushes=bool(pushes))


def _rows(key: int, logged: Sequence[Logged], position: str | None) -> list[tuple[Any, ...]]:
    """The worker's position is stored with the last event."""
    base, rows = key << CURSOR_BITS, list[tuple[Any, ...]]()
    for item in logged:
        event = item.event
        rows.append(
            (
                base + item.cursor,
                _KIND_TEXT[event.kind],
                _STATE_TEXT[event.state],
                event.dialect,
                "",
                bytearray(event.body),
            )
        )
    if rows and position is not None:
        rows[-1] = (*rows[-1][:4], position, rows[-1][5])
    return rows


def _add_all(db: sqlite3.Connection, first: str, rows: Sequence[tuple[Any, ...]], cached: CachedTask) -> bool:
    """Insert all rows, or none. True: inserted."""
    if db.execute(first, (*rows[0], cached.key, cached.task)).rowcount != 1:
        return False
    if len(rows) > 1:
        db.executemany(_ADD, rows[1:])
    return True


def _row_change(cached: CachedTask, entry: LogEntry, effect: Outcome, end: Cursor, now: float) -> tuple[str, Sequence[Any]]:
    """The update that brings the task's row up to `end`."""
    row_change: dict[str, Any] = {"last": end, "size": cached.logged + effect.size, "written": now}
    if entry.position is not None:
        row_change["position"] = entry.position
    if effect.state is not None:
        row_change |= {"state": _STATE_TEXT[effect.state], "updated": now}
    if effect.terminal:
        row_change |= {"idle_since": now, "hidden": effect.hidden}
    if entry.ids is not None:
        before, after = cached.row.ids, with_ids(cached.row, entry.ids).ids
        row_change |= {name: getattr(after, name) for name in _IDS if getattr(after, name) != getattr(before, name)}
    return _update(tuple(row_change)), (*row_change.values(), cached.key, cached.task, (cached.key << CURSOR_BITS) + end + 1)


def _logged(rows: Sequence[tuple[Any, ...]]) -> list[Logged]:
    return [Logged(Cursor(at), Event(_KINDS[kind], _STATES[state], dialect, body)) for at, kind, state, dialect, body in rows]
