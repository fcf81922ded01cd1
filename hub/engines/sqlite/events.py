"""The event log of the SQLite engine."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from hub.engines.held import Held, numbered, outcome, weight
from hub.engines.hint import Hint
from hub.engines.sqlite.cache import Cache
from hub.engines.sqlite.reader import Reader
from hub.engines.sqlite.tasks import MEMBERS, row_of
from hub.engines.sqlite.writer import Writer
from hub.engines.tail import PAGE_BYTES, PAGE_EVENTS, Follower, Tail
from hub.errors import LogMoved, TaskNotFound
from hub.model.a2a import Event, EventKind, Logged, TaskState
from hub.model.ids import START, Cursor, TaskId
from hub.ports import Clock, Entry

# An event's place: its task's key above, its cursor below.
CURSOR_BITS = 24
LAST_CURSOR = (1 << CURSOR_BITS) - 1

_ADD = "insert into event (place, kind, state, dialect, body) values (?, ?, ?, ?, ?)"
_KEY = "select key from task where id = ?"
_KINDS = {str(kind): kind for kind in EventKind}
_STATES: dict[str | None, TaskState | None] = {None: None, **{str(state): state for state in TaskState}}
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
_HELD = f"select key, hidden, pushes, {MEMBERS} from task where id = ?"


def _update(*, ends: bool, ids: bool) -> str:
    """Only what changes is named: SQLite rewrites the index of every column that an update names."""
    sets = [
        "last = ?4",
        "state = coalesce(?5, state)",
        "position = coalesce(?6, position)",
        "size = size + ?7",
        "updated = ?8",
    ]
    if ends:
        sets += ["idle_since = ?8", "hidden = ?9"]
    if ids:
        for number, name in enumerate(("context", "worker_task", "worker_context"), 10):
            sets.append(f"{name} = coalesce(nullif(?{number}, ''), {name})")
    # The id as well, because a key that was discarded may have a new owner.
    return f"update task set {', '.join(sets)} where key = ?1 and id = ?2 and last = ?3 and idle_since is null"


_UPDATES = {(ends, ids): _update(ends=ends, ids=ids) for ends in (False, True) for ids in (False, True)}


class SqliteLog:
    """`owed` hears of each append that a receiver may have to be told of."""

    def __init__(self, writer: Writer, reader: Reader, cache: Cache, clock: Clock, owed: Hint) -> None:
        self._writer = writer
        self._reader = reader
        self._cache = cache
        self._clock = clock
        self._owed = owed

    async def append(self, task: TaskId, entry: Entry, *, after: Cursor) -> Cursor:
        now = self._clock.wall()
        verdict = outcome(entry.events)
        logged = numbered(entry.events, after)
        end = Cursor(after + len(logged))
        if end > LAST_CURSOR:
            raise LogMoved
        held = self._cache.find(task)
        key = held.key if held is not None else None
        sql = _UPDATES[verdict.ends, entry.ids is not None]
        values: tuple[Any, ...] = (task, after, end, verdict.state, entry.position, weight(entry.events), now)
        if verdict.ends or entry.ids is not None:
            values += (verdict.hidden,)
        if entry.ids is not None:
            values += entry.ids[1:4]

        def write(db: sqlite3.Connection) -> bool:
            found = (key,) if key is not None else db.execute(_KEY, (task,)).fetchone()
            if found is None or db.execute(sql, (found[0], *values)).rowcount != 1:
                return False
            base = found[0] << CURSOR_BITS
            db.executemany(_ADD, [(base + at, event.kind, event.state, event.dialect, event.body) for at, event in logged])
            return True

        def publish(won: bool) -> None:
            held = self._cache.written(task) if won else None
            if held is not None:
                held.advance(entry, logged, verdict, now)
                self._cache.keep(task, held)
            if won and (held is None or held.pushes):
                self._owed.give()

        if not await self._writer.submit(write, publish, brief=True):
            raise LogMoved
        return end

    async def read(self, task: TaskId, *, after: Cursor = START, upto: Cursor | None = None) -> Sequence[Logged]:
        held = self._cache.find(task)
        if held is not None and held.covers(after):
            return held.since(after, upto)
        last = LAST_CURSOR if upto is None else min(upto, LAST_CURSOR)
        return _logged(await self._reader.rows(_READ, (task, after, last)))

    def follow(self, task: TaskId, *, after: Cursor, idle: timedelta) -> Follower:
        return Follower(self, task, self._cache.find(task), after=after, idle=idle)

    async def tail(self, task: TaskId) -> Tail:
        return await self._cache.load(task, self._read_held)

    async def page(self, task: TaskId, after: Cursor) -> Sequence[Logged]:
        return _logged(await self._reader.rows(_PAGE, (task, after)))

    async def _read_held(self, task: TaskId) -> Held:
        rows = await self._reader.rows(_HELD, (task,))
        if not rows:
            raise TaskNotFound
        key, hidden, pushes, *members = rows[0]
        return Held(row_of(members), None, key=key, hidden=bool(hidden), pushes=bool(pushes))


def _logged(rows: Sequence[tuple[Any, ...]]) -> list[Logged]:
    return [Logged(Cursor(at), Event(_KINDS[kind], _STATES[state], dialect, body)) for at, kind, state, dialect, body in rows]
