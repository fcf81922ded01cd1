"""Push configs and the outbox of the SQLite engine."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from enum import Enum, auto
from typing import Any

from hub.ports.clock import Clock
from hub.ports.pushes import DeliveryClaim
from hub.storage.common.dead_letters import LetterMark, page_of
from hub.storage.common.notifier import Notifier
from hub.storage.sqlite.cache import Cache
from hub.storage.sqlite.reader import SqliteReader
from hub.storage.sqlite.writer import Writer
from rolecall.errors import DeadLetterNotFound, PushConfigNotFound, TaskNotFound, TooManyPushConfigs
from rolecall.model.ids import Caller, Cursor, TaskId
from rolecall.model.push import DeadLetter, DeadPage, SealedConfig

# How far one claim looks around for hosts with room. The next claim goes on from there.
HOSTS_LOOKED_AT = 500

_OWN = "id = :task and workspace = :workspace and caller = :caller and not hidden"
_KEY = "(select key from task where id = :task)"
_THIS = f"task = {_KEY} and config = :config and only = :only"
_MINE = f"{_THIS} and fence = :fence and held"

_CONFIG = "c.id, c.url, c.host, c.dialect, c.token, c.schemes, c.credentials"
_LIST = f"""
select t.id, {_CONFIG} from task t left join push_config c on c.task = t.key
where t.id = ? and t.workspace = ? and t.caller = ? and not t.hidden order by c.rowid
"""
_SET_CONFIG = """
insert into push_config (task, id, url, host, dialect, schemes, token, credentials)
values (:key, :config, :url, :host, :dialect, :schemes, :token, :credentials)
on conflict do update set url = excluded.url, host = excluded.host, dialect = excluded.dialect, schemes = excluded.schemes,
  token = excluded.token, credentials = excluded.credentials
"""
_SET_DELIVERY = """
insert into delivery (task, config, only, host, sent, last, since, at, fence)
values (:key, :config, 0, :host, :sent, :last, :wall, :now, :fence)
on conflict do update set sent = min(sent, excluded.sent)
"""
# Whoever holds a delivery of the config that is replaced loses it.
_SET_ALL_DELIVERIES = """
update delivery set host = :host, at = :now, held = 0, failures = 0, failed = null
where task = :key and config = :config
"""
_NEXT_HOST = "select host from delivery where sent < last and host > ? order by host limit 1"
_TAKE = """
update delivery set at = :until, held = 1, fence = fence + 1 where (task, config, only) in (
  select task, config, only from delivery where sent < last and host = :host and at <= :now order by at limit :room
)
returning task, config, only, sent, last, failures, failed, since, fence
"""
_TAKEN = f"""
select t.workspace, t.caller, t.id, {_CONFIG} from task t join push_config c on c.task = t.key and c.id = ?2 where t.key = ?1
"""
# Lets go where nothing more is owed, or `:until` is not given.
_GO_ON = f"""
update delivery set sent = :upto, held = :until is not null and :upto < last,
  at = case when :until is not null and :upto < last then :until else :now end %s
where {_MINE} returning last, held
"""
_DELIVERED = _GO_ON % ", failures = 0, failed = null"
_BURIED = _GO_ON % ""
_POSTPONE = f"""
update delivery set at = :at, held = 0, failures = failures + 1, failed = coalesce(failed, :now) where {_MINE}
"""
_RELEASE = f"update delivery set at = :now, held = 0 where {_MINE}"
_KEEP = "update task set idle_since = max(idle_since, :idle) where id = :task and idle_since is not null"
_DROP_ONLY = f"delete from delivery where {_MINE}"
_DROP_LETTER = f"delete from dead_letter where task = {_KEY} and config = :config and cursor = :cursor"
_BURY = f"""
insert into dead_letter (task, config, cursor, workspace, caller, reason, at)
values ({_KEY}, :config, :cursor, :workspace, :caller, :reason, :wall)
on conflict do update set reason = excluded.reason, at = excluded.at
"""
_LETTERS = """
select t.id, d.config, d.cursor, c.url, d.reason, d.at from dead_letter d
join task t on t.key = d.task join push_config c on c.task = d.task and c.id = d.config
where d.workspace = ? {} order by d.at desc, t.id desc, d.config desc, d.cursor desc limit ?
"""
_HIS = "and d.caller = ?"
_BEHIND = "and (d.at, t.id, d.config, d.cursor) < (?, ?, ?, ?)"
_FIND_LETTER = """
select d.task, c.host from dead_letter d join push_config c on c.task = d.task and c.id = d.config
where d.task = :key and d.config = :config and d.cursor = :cursor
"""
_REDELIVER = """
insert into delivery (task, config, only, host, sent, last, since, at, fence)
values (:key, :config, :cursor, :host, :cursor - 1, :cursor, :wall, :now, :fence)
on conflict do update set at = case when held then at else :now end, failures = 0, failed = null
"""


class _Outcome(Enum):
    SET = auto()
    UNKNOWN = auto()
    FULL = auto()


class SqlitePushes:
    def __init__(self, writer: Writer, reader: SqliteReader, cache: Cache, clock: Clock, owed: Notifier) -> None:
        self._writer = writer
        self._reader = reader
        self._cache = cache
        self._clock = clock
        self._owed = owed
        self._offset = 0.0
        self._turn = ""

    async def load(self) -> None:
        """One process per file: whoever held anything is dead."""
        self._offset = self._clock.wall() - self._clock.monotonic()
        now = self._now()
        await self._writer.submit(lambda db: _freed(db, now))

    async def set(self, caller: Caller, config: SealedConfig, *, most: int) -> None:
        def publish(outcome: _Outcome) -> None:
            held = self._cache.written(config.task) if outcome is _Outcome.SET else None
            if held is not None:
                held.pushes = True
            self._owed.give()

        outcome = await self._writer.submit(self.setting(caller, config, most=most), publish)
        if outcome is _Outcome.UNKNOWN:
            raise TaskNotFound
        if outcome is _Outcome.FULL:
            raise TooManyPushConfigs(most)

    def setting(self, caller: Caller, config: SealedConfig, *, most: int) -> Callable[[sqlite3.Connection], _Outcome]:
        """The write alone, for a transaction that does more."""
        values = self._values(caller, config.task, config.id, schemes=" ".join(config.schemes), most=most)
        for name in ("url", "host", "dialect", "token", "credentials"):
            values[name] = getattr(config, name)
        return lambda db: _set(db, values)

    async def get(self, caller: Caller, task: TaskId, config: str) -> SealedConfig:
        for found in await self.list(caller, task):
            if found.id == config:
                return found
        raise PushConfigNotFound

    async def list(self, caller: Caller, task: TaskId) -> Sequence[SealedConfig]:
        rows = await self._reader.rows(_LIST, (task, *caller))
        if not rows:
            raise TaskNotFound
        return [_config(members) for members in rows if members[1] is not None]

    async def delete(self, caller: Caller, task: TaskId, config: str) -> None:
        values = self._values(caller, task, config)
        if not await self._writer.submit(lambda db: _deleted(db, values)):
            raise TaskNotFound

    def on_due(self, wake: Callable[[], None]) -> None:
        self._owed.listen(wake)

    async def claim(self, most: int, lease: timedelta, *, at_once: int, busy: Mapping[str, int]) -> Sequence[DeliveryClaim]:
        now, wall = self._now(), self._clock.wall()

        def write(db: sqlite3.Connection) -> Sequence[tuple[Any, ...]]:
            taken = list[tuple[Any, ...]]()
            for host in _hosts(db, self._turn):
                self._turn = host
                room = min(most - len(taken), at_once - busy.get(host, 0))
                if room > 0:
                    values = {"host": host, "now": now, "until": now + lease.total_seconds(), "room": room}
                    taken += db.execute(_TAKE, values).fetchall()
                if len(taken) >= most:
                    break
            return [(*row, *db.execute(_TAKEN, row[:2]).fetchone()) for row in taken]

        return [_claim(row, now, wall) for row in await self._writer.submit(write)]

    async def delivered(self, claim: DeliveryClaim, upto: Cursor, *, hold: timedelta) -> Cursor | None:
        values = self._values_of(claim, hold, upto=upto, cursor=upto)

        def write(db: sqlite3.Connection) -> tuple[int, int] | None:
            if claim.only and db.execute(_DROP_ONLY, values).rowcount == 1:
                db.execute(_DROP_LETTER, values)
            found: tuple[int, int] | None = db.execute(_DELIVERED, values).fetchone()
            return found

        return _owed_now(await self._writer.submit(write))

    async def bury(self, claim: DeliveryClaim, cursor: Cursor, reason: str, *, hold: timedelta) -> Cursor | None:
        values = self._values_of(claim, hold, upto=cursor, cursor=cursor, reason=reason)

        def write(db: sqlite3.Connection) -> tuple[int, int] | None:
            found: tuple[int, int] | None = db.execute(_BURIED, values).fetchone()
            if found is not None:
                db.execute(_BURY, values)
                db.execute(_KEEP, values)
                if claim.only:
                    db.execute(f"delete from delivery where {_THIS}", values)
            return found

        return _owed_now(await self._writer.submit(write))

    async def postpone(self, claim: DeliveryClaim, retry_in: timedelta) -> None:
        values = self._values_of(claim, None, at=self._now() + retry_in.total_seconds())
        values["idle"] += retry_in.total_seconds()

        def write(db: sqlite3.Connection) -> None:
            if db.execute(_POSTPONE, values).rowcount == 1:
                db.execute(_KEEP, values)

        await self._writer.submit(write)

    async def release(self, claim: DeliveryClaim) -> None:
        values = self._values_of(claim, None)
        await self._writer.submit(lambda db: db.execute(_RELEASE, values).rowcount, lambda _: self._owed.give())

    async def dead_letters(self, caller: Caller, *, limit: int, before: str | None = None, whole: bool = False) -> DeadPage:
        his, behind = "" if whole else _HIS, "" if before is None else _BEHIND
        who = (caller.workspace,) if whole else caller
        mark = () if before is None else LetterMark.parse(before)
        rows = await self._reader.rows(_LETTERS.format(f"{his} {behind}"), (*who, *mark, limit + 1))
        return page_of([DeadLetter(*row) for row in rows], limit)

    async def redeliver(self, caller: Caller, task: TaskId, config: str, cursor: Cursor) -> None:
        values = self._values(caller, task, config, cursor=cursor)
        outcome = await self._writer.submit(lambda db: _redelivered(db, values), lambda _: self._owed.give())
        if outcome is None:
            raise TaskNotFound
        if not outcome:
            raise DeadLetterNotFound

    def _now(self) -> float:
        """Comparable across restarts, and not moved by whoever sets the machine's time meanwhile."""
        return self._offset + self._clock.monotonic()

    def _values(self, caller: Caller, task: TaskId, config: str, **more: Any) -> dict[str, Any]:
        wall = self._clock.wall()
        names = {"workspace": caller.workspace, "caller": caller.name, "task": task, "config": config}
        # A config that is deleted and set again must not have the fence of its forerunner.
        return {**names, "now": self._now(), "wall": wall, "idle": wall, "fence": random.getrandbits(48), **more}

    def _values_of(self, claim: DeliveryClaim, hold: timedelta | None, **more: Any) -> dict[str, Any]:
        values = self._values(claim.caller, claim.config.task, claim.config.id, **more)
        only = claim.last if claim.only else 0
        return {**values, "only": only, "fence": claim.fence, "until": values["now"] + hold.total_seconds() if hold else None}


def _freed(db: sqlite3.Connection, now: float) -> None:
    db.execute("update delivery set held = 0, at = ? where sent < last and held", (now,))


def _hosts(db: sqlite3.Connection, start: str) -> Iterator[str]:
    """Those that are owed something, once around from behind `start`."""
    host, deps = start, start == ""
    for _ in range(HOSTS_LOOKED_AT):
        found = db.execute(_NEXT_HOST, (host,)).fetchone()
        if found is None and deps:
            return
        deps, host = deps or found is None, found[0] if found is not None else ""
        if deps and host > start > "":
            return
        if host:
            yield host


def _set(db: sqlite3.Connection, values: dict[str, Any]) -> _Outcome:
    task = db.execute(f"select key, last, idle_since is not null from task_now where {_OWN}", values).fetchone()
    if task is None:
        return _Outcome.UNKNOWN
    key, last, ended = task
    values = {**values, "key": key, "last": last, "sent": last - 1 if ended else last}
    others = db.execute("select count(*) from push_config where task = :key and id <> :config", values).fetchone()[0]
    if others >= values["most"]:
        return _Outcome.FULL
    for sql in (_SET_CONFIG, _SET_DELIVERY, _SET_ALL_DELIVERIES, _KEEP):
        db.execute(sql, values)
    db.execute("update task set pushes = 1 where key = :key and not pushes", values)
    return _Outcome.SET


def _deleted(db: sqlite3.Connection, values: dict[str, Any]) -> bool:
    task = db.execute(f"select key from task where {_OWN}", values).fetchone()
    if task is None:
        return False
    for table, column in (("push_config", "id"), ("delivery", "config"), ("dead_letter", "config")):
        db.execute(f"delete from {table} where task = :key and {column} = :config", {**values, "key": task[0]})
    return True


def _redelivered(db: sqlite3.Connection, values: dict[str, Any]) -> bool | None:
    """None: no such task in the workspace."""
    task = db.execute("select key from task where id = :task and workspace = :workspace and not hidden", values).fetchone()
    if task is None:
        return None
    letter = db.execute(_FIND_LETTER, {**values, "key": task[0]}).fetchone()
    if letter is None:
        return False
    db.execute(_REDELIVER, {**values, "key": task[0], "host": letter[1]})
    db.execute(_KEEP, values)
    return True


def _config(members: Sequence[Any]) -> SealedConfig:
    task, name, url, host, dialect, token, schemes, credentials = members
    return SealedConfig(TaskId(task), name, url, host, dialect, token, tuple(schemes.split()), credentials)


def _claim(row: Sequence[Any], now: float, wall: float) -> DeliveryClaim:
    _, _, only, sent, last, failures, failed, since, fence, workspace, caller, *config = row
    return DeliveryClaim(
        caller=Caller(workspace, caller),
        config=_config(config),
        only=only > 0,
        sent=Cursor(sent),
        last=Cursor(last),
        failures=failures,
        failing_for=timedelta(seconds=max(0.0, now - failed) if failed is not None else 0.0),
        waiting_for=timedelta(seconds=max(0.0, wall - since)),
        fence=fence,
    )


def _owed_now(found: tuple[int, int] | None) -> Cursor | None:
    return Cursor(found[0]) if found is not None and found[1] else None
