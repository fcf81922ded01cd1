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

# An event's place: its task's key above, its cursor below.
CURSOR_BITS = 24
LAST_CURSOR = (1 << CURSOR_BITS) - 1

_COLUMNS = "place, kind, state, dialect, position, body"
_ADD = f"insert into event ({_COLUMNS}) values (?, ?, ?, ?, ?, ?)"
# Two writers find out here: the first event of an append goes to a place that is free, of a task that is open. The id as well,
# because a key that was discarded may have a new owner.
_ADD_FIRST = f"""
insert into event ({_COLUMNS}) select ?, ?, ?, ?, ?, ? from task where key = ? and id = ? and idle_since is null %s
on conflict do nothing
"""
_ADD_ALONE = _ADD_FIRST % "and not pushes"
_ADD_FIRST = _ADD_FIRST % ""
_KINDS = {str(kind): kind for kind in EventKind}
_STATES: dict[str | None, TaskState | None] = {None: None, "": None, **{str(state): state for state in TaskState}}
# Numbers, plain strings and byte arrays: for anything else, None included, SQLite's module first looks for an adapter, in vain,
# and that costs as much as the rest of an insert.
_KIND = {kind: text for text, kind in _KINDS.items()}
_STATE = {state: text or "" for text, state in _STATES.items()}
_READ = f"""
select place & {LAST_CURSOR}, kind, state, dialect, body from event
where place > (select key << {CURSOR_BITS} from task where id = ?1) + ?2
and place <= (select key << {CURSOR_BITS} from task where id = ?1) + ?3
order by place
"""
# The sizes are looked at first, so that a page of large events is not read in order to be thrown away.
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
_HELD = f"select key, hidden, pushes, {MEMBERS} from task_now where id = ?"
_ROW_BEHIND = 200
"""Events that a task's row may lack."""


_IDS = ("context", "worker_task", "worker_context")


@lru_cache(maxsize=64)
def _update(columns: tuple[str, ...]) -> str:
    """Only what changes is named: SQLite rewrites the index of every column that an update names."""
    sets = ", ".join(f"{column} = ?" for column in columns)
    return f"""
    update task set {sets} where key = ? and id = ? and idle_since is null
    and not exists (select 1 from event where place = ?)
    """


class SqliteLog:
    """`owed` hears of each append that a receiver may have to be told of."""

    def __init__(self, writer: Writer, reader: SqliteReader, cache: Cache, clock: Clock, owed: Notifier) -> None:
        self._writer = writer
        self._reader = reader
        self._cache = cache
        self._clock = clock
        self._owed = owed

    async def append(self, task: TaskId, entry: LogEntry, *, after: Cursor) -> Cursor:
        held = await self._held(task)
        end = Cursor(after + len(entry.events))
        if held is None or held.closed or held.end != after or end > LAST_CURSOR:
            raise LogMoved
        now, verdict, logged = self._clock.wall(), outcome(entry.events), numbered(entry.events, after)
        if entry.position is None and held.position is not None:
            entry = replace(entry, position=held.position)  # it may stand by an earlier event alone, where nobody would look
        events = _rows(held.key, logged, entry.position)
        tells = verdict.state is not None or entry.ids is not None or held.pushes or not events
        alone = not tells and end - held.named < _ROW_BEHIND
        change = None if alone else _change(held, entry, verdict, end, now)

        def write(db: sqlite3.Connection) -> Cursor | None:
            """The end that the task's row names then. None: this writer has lost."""
            if alone and _added(db, _ADD_ALONE, events, held):
                return held.named
            if events and not _added(db, _ADD_FIRST, events, held):
                return None
            return end if db.execute(*(change or _change(held, entry, verdict, end, now))).rowcount == 1 else None

        def publish(named: Cursor | None) -> None:
            if named is None:
                return
            known = self._cache.written(task)
            if known is not None:
                known.advance(entry, logged, verdict, now)
                known.named = named
                self._cache.keep(task, known)
            if known is None or known.pushes:
                self._owed.give()

        if await self._writer.submit(write, publish, brief=True) is None:
            raise LogMoved
        return end

    async def read(self, task: TaskId, *, after: Cursor = START, upto: Cursor | None = None) -> Sequence[Logged]:
        held = self._cache.find(task)
        if held is not None and held.covers(after):
            return held.since(after, upto)
        last = LAST_CURSOR if upto is None else min(upto, LAST_CURSOR)
        return _logged(await self._reader.rows(_READ, (task, after, last)))

    def follow(self, task: TaskId, *, after: Cursor, idle: timedelta) -> LogFollower:
        return LogFollower(self, task, self._cache.find(task), after=after, idle=idle)

    async def tail(self, task: TaskId) -> LogTail:
        return await self._cache.load(task, self._read_held)

    async def page(self, task: TaskId, after: Cursor) -> Sequence[Logged]:
        return _logged(await self._reader.rows(_PAGE, (task, after)))

    async def _held(self, task: TaskId) -> CachedTask | None:
        try:
            return self._cache.find(task) or await self._cache.load(task, self._read_held)
        except TaskNotFound:
            return None

    async def _read_held(self, task: TaskId) -> CachedTask:
        rows = await self._reader.rows(_HELD, (task,))
        if not rows:
            raise TaskNotFound
        key, hidden, pushes, *members = rows[0]
        return CachedTask(row_of(members), None, key=key, hidden=bool(hidden), pushes=bool(pushes))


def _rows(key: int, logged: Sequence[Logged], position: str | None) -> list[tuple[Any, ...]]:
    """The worker's position stands by the last one."""
    base, rows = key << CURSOR_BITS, list[tuple[Any, ...]]()
    for one in logged:
        event = one.event
        rows.append((base + one.cursor, _KIND[event.kind], _STATE[event.state], event.dialect, "", bytearray(event.body)))
    if rows and position is not None:
        rows[-1] = (*rows[-1][:4], position, rows[-1][5])
    return rows


def _added(db: sqlite3.Connection, first: str, rows: Sequence[tuple[Any, ...]], held: CachedTask) -> bool:
    """All of them, or none."""
    if db.execute(first, (*rows[0], held.key, held.task)).rowcount != 1:
        return False
    if len(rows) > 1:
        db.executemany(_ADD, rows[1:])
    return True


def _change(held: CachedTask, entry: LogEntry, verdict: Outcome, end: Cursor, now: float) -> tuple[str, Sequence[Any]]:
    """What brings the task's row up to the end."""
    change: dict[str, Any] = {"last": end, "size": held.logged + verdict.size, "written": now}
    if entry.position is not None:
        change["position"] = entry.position
    if verdict.state is not None:
        change |= {"state": _STATE[verdict.state], "updated": now}
    if verdict.ends:
        change |= {"idle_since": now, "hidden": verdict.hidden}
    if entry.ids is not None:
        before, after = held.row.ids, with_ids(held.row, entry.ids).ids
        change |= {name: getattr(after, name) for name in _IDS if getattr(after, name) != getattr(before, name)}
    return _update(tuple(change)), (*change.values(), held.key, held.task, (held.key << CURSOR_BITS) + end + 1)


def _logged(rows: Sequence[tuple[Any, ...]]) -> list[Logged]:
    return [Logged(Cursor(at), Event(_KINDS[kind], _STATES[state], dialect, body)) for at, kind, state, dialect, body in rows]
