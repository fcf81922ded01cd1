"""Push configs and the outbox of the SQLite engine."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Sequence
from datetime import timedelta
from enum import Enum, auto
from functools import partial
from typing import Any

from hub.ports.clock import Clock
from hub.ports.state.pushes import DeliveryClaim, DeliveryRoom
from hub.storage.common.dead_letters import LetterMark, page_of
from hub.storage.common.notifier import Notifier
from hub.storage.common.turns import RoomLeft, Turns
from hub.storage.sqlite.cache import Cache
from hub.storage.sqlite.connections.readers import SqliteReader
from hub.storage.sqlite.connections.writer import Writer
from rolecall.errors import DeadLetterNotFound, PushConfigNotFound, TaskNotFound, TooManyPushConfigs
from rolecall.model.ids import START, Caller, Cursor, TaskId
from rolecall.model.push import Backlog, DeadLetter, DeadPage, SealedConfig
from rolecall.model.task import COUNTED

_OWN = "id = :task and workspace = :workspace and caller = :caller and not hidden"
_KEY = "(select key from task where id = :task)"
_THIS = f"task = {_KEY} and config = :config and only = :only"
_MINE = f"{_THIS} and fence = :fence and held"

_CONFIG = "c.id, c.url, c.host, c.dialect, c.token, c.schemes, c.credentials, c.numbers, c.by_reference"
_LIST = f"""
select t.id, {_CONFIG} from task t left join push_config c on c.task = t.key
where t.id = ? and t.workspace = ? and t.caller = ? and not t.hidden order by c.rowid
"""
_SET_CONFIG = """
insert into push_config (task, id, url, host, dialect, schemes, token, credentials, numbers, by_reference)
values (:key, :config, :url, :host, :dialect, :schemes, :token, :credentials, :numbers, :by_reference)
on conflict do update set url = excluded.url, host = excluded.host, dialect = excluded.dialect, schemes = excluded.schemes,
  token = excluded.token, credentials = excluded.credentials, numbers = excluded.numbers,
  by_reference = excluded.by_reference
"""
_SET_DELIVERY = """
insert into delivery (task, config, only, workspace, host, sent, last, since, at, fence)
values (:key, :config, 0, :workspace, :host, :sent, :last, :wall, :now, :fence)
on conflict do update set sent = min(sent, excluded.sent)
"""
# A current claim on a delivery of the replaced config becomes void.
_SET_ALL_DELIVERIES = """
update delivery set host = :host, at = :now, held = 0, failures = 0, failed = null
where task = :key and config = :config
"""
_NEXT_WORKSPACE = "select workspace from delivery where sent < last and workspace > ? order by workspace limit 1"
_NEXT_HOST = "select host from delivery where sent < last and workspace = ? and host > ? order by host limit 1"
_CLAIM = """
update delivery set at = :until, held = 1, fence = fence + 1 where (task, config, only) in (
  select task, config, only from delivery
  where sent < last and workspace = :workspace and host = :host and at <= :now order by at limit :room
)
returning task, config, only, sent, last, failures, failed, since, fence
"""
_CLAIMED = f"""
select t.workspace, t.caller, t.id, {_CONFIG} from task t join push_config c on c.task = t.key and c.id = ?2 where t.key = ?1
"""
# Releases the claim if nothing more is owed, or `:until` is null.
_ADVANCE = f"""
update delivery set sent = :upto, held = :until is not null and :upto < last,
  at = case when :until is not null and :upto < last then :until else :now end %s
where {_MINE} returning last, held
"""
_DELIVERED = _ADVANCE % ", failures = 0, failed = null"
_GIVEN_UP = _ADVANCE % ""
_POSTPONE = f"""
update delivery set at = :at, held = 0, failures = failures + 1, failed = coalesce(failed, :now) where {_MINE}
"""
_RELEASE = f"update delivery set at = :now, held = 0 where {_MINE}"
_KEEP = "update task set idle_since = max(idle_since, :idle) where id = :task and idle_since is not null"
_MARK_OWED = """
update delivery set since = case when sent = last then ?3 else since end, last = ?2 where task = ?1 and only = 0 and last < ?2
"""
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
_BACKLOG = f"""
select (select count(*) from (select 1 from delivery where sent < last limit {COUNTED})),
  (select count(*) from (select 1 from dead_letter limit {COUNTED}))
"""
_OF_CALLER = "and d.caller = ?"
_AFTER_MARK = "and (d.at, t.id, d.config, d.cursor) < (?, ?, ?, ?)"
_FIND_LETTER = """
select d.task, c.host from dead_letter d join push_config c on c.task = d.task and c.id = d.config
where d.task = :key and d.config = :config and d.cursor = :cursor
"""
_REDELIVER = """
insert into delivery (task, config, only, workspace, host, sent, last, since, at, fence)
values (:key, :config, :cursor, :workspace, :host, :cursor - 1, :cursor, :wall, :now, :fence)
on conflict do update set at = case when held then at else :now end, failures = 0, failed = null
"""


def mark_owed(db: sqlite3.Connection, key: int, last: Cursor, now: float) -> None:
    """The task's log ends at `last`: its receivers are owed all up to there. Within the transaction of the append."""
    db.execute(_MARK_OWED, (key, last, now))


class _Outcome(Enum):
    SET = auto()
    UNKNOWN = auto()
    FULL = auto()


class SqlitePushes:
    def __init__(self, writer: Writer, reader: SqliteReader, cache: Cache, clock: Clock, notifier: Notifier) -> None:
        self._writer = writer
        self._reader = reader
        self._cache = cache
        self._clock = clock
        self._notifier = notifier
        self._offset = 0.0
        self._turns = Turns()

    async def load(self) -> None:
        """One process per file: no claim of an earlier process is valid."""
        self._offset = self._clock.wall() - self._clock.monotonic()
        now = self._now()
        await self._writer.submit(lambda db: _release_all(db, now))

    async def set(self, caller: Caller, config: SealedConfig, *, limit: int, newest: bool = False) -> None:
        def publish(outcome: _Outcome) -> None:
            cached = self._cache.on_write(config.task) if outcome is _Outcome.SET else None
            if cached is not None:
                cached.pushes = True
            self._notifier.notify()

        outcome = await self._writer.submit(self.config_work(caller, config, limit=limit, newest=newest), publish)
        if outcome is _Outcome.UNKNOWN:
            raise TaskNotFound
        if outcome is _Outcome.FULL:
            raise TooManyPushConfigs(limit)

    def config_work(
        self, caller: Caller, config: SealedConfig, *, limit: int, newest: bool = False
    ) -> Callable[[sqlite3.Connection], _Outcome]:
        """The work that sets a config, to be part of a larger transaction."""
        values = self._values(caller, config.task, config.id, schemes=" ".join(config.schemes), limit=limit, newest=newest)
        for name in ("url", "host", "dialect", "token", "credentials", "numbers", "by_reference"):
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
        if not await self._writer.submit(lambda db: _delete_config(db, values)):
            raise TaskNotFound

    def on_due(self, wake: Callable[[], None]) -> None:
        self._notifier.listen(wake)

    async def claim(self, room: DeliveryRoom, lease: timedelta) -> Sequence[DeliveryClaim]:
        now, wall = self._now(), self._clock.wall()

        def write(db: sqlite3.Connection) -> Sequence[tuple[Any, ...]]:
            claimed, left = list[tuple[Any, ...]](), RoomLeft(room)
            for workspace, host in self._turns.begin(partial(_next, db, _NEXT_WORKSPACE), partial(_next, db, _NEXT_HOST)):
                if free := left.of(workspace, host):
                    values = {"workspace": workspace, "host": host, "now": now, "until": now + lease.total_seconds()}
                    found = db.execute(_CLAIM, {**values, "room": free}).fetchall()
                    left.take(workspace, len(found))
                    claimed += found
                if not left.total:
                    break
            return [(*row, *db.execute(_CLAIMED, row[:2]).fetchone()) for row in claimed]

        return [_claim_of(row, now, wall) for row in await self._writer.submit(write)]

    async def delivered(self, claim: DeliveryClaim, upto: Cursor, *, hold: timedelta) -> Cursor | None:
        values = self._values_of(claim, hold, upto=upto, cursor=upto)

        def write(db: sqlite3.Connection) -> tuple[int, int] | None:
            if claim.only and db.execute(_DROP_ONLY, values).rowcount == 1:
                db.execute(_DROP_LETTER, values)
            found: tuple[int, int] | None = db.execute(_DELIVERED, values).fetchone()
            return found

        return _last_if_claimed(await self._writer.submit(write))

    async def bury(self, claim: DeliveryClaim, cursor: Cursor, reason: str, *, hold: timedelta) -> Cursor | None:
        values = self._values_of(claim, hold, upto=cursor, cursor=cursor, reason=reason)

        def write(db: sqlite3.Connection) -> tuple[int, int] | None:
            found: tuple[int, int] | None = db.execute(_GIVEN_UP, values).fetchone()
            if found is not None:
                db.execute(_BURY, values)
                db.execute(_KEEP, values)
                if claim.only:
                    db.execute(f"delete from delivery where {_THIS}", values)
            return found

        return _last_if_claimed(await self._writer.submit(write))

    async def postpone(self, claim: DeliveryClaim, retry_in: timedelta) -> None:
        values = self._values_of(claim, None, at=self._now() + retry_in.total_seconds())
        values["idle"] += retry_in.total_seconds()

        def write(db: sqlite3.Connection) -> None:
            if db.execute(_POSTPONE, values).rowcount == 1:
                db.execute(_KEEP, values)

        await self._writer.submit(write)

    async def release(self, claim: DeliveryClaim) -> None:
        values = self._values_of(claim, None)
        await self._writer.submit(lambda db: db.execute(_RELEASE, values).rowcount, lambda _: self._notifier.notify())

    async def dead_letters(self, caller: Caller, *, limit: int, before: str | None = None, whole: bool = False) -> DeadPage:
        of_caller, after_mark = "" if whole else _OF_CALLER, "" if before is None else _AFTER_MARK
        owner = (caller.workspace,) if whole else caller
        mark = () if before is None else LetterMark.parse(before)
        rows = await self._reader.rows(_LETTERS.format(f"{of_caller} {after_mark}"), (*owner, *mark, limit + 1))
        return page_of([DeadLetter(*row) for row in rows], limit)

    async def backlog(self) -> Backlog:
        [(owed, dead_letters)] = await self._reader.rows(_BACKLOG)
        return Backlog(owed, dead_letters)

    async def redeliver(self, caller: Caller, task: TaskId, config: str, cursor: Cursor) -> None:
        values = self._values(caller, task, config, cursor=cursor)
        outcome = await self._writer.submit(lambda db: _redeliver_letter(db, values), lambda _: self._notifier.notify())
        if outcome is None:
            raise TaskNotFound
        if not outcome:
            raise DeadLetterNotFound

    def _now(self) -> float:
        """Comparable across restarts, and not affected by changes of the machine's time while the hub runs."""
        return self._offset + self._clock.monotonic()

    def _values(self, caller: Caller, task: TaskId, config: str, **more: Any) -> dict[str, Any]:
        wall = self._clock.wall()
        names = {"workspace": caller.workspace, "caller": caller.name, "task": task, "config": config}
        # A config that is deleted and set again must not reuse its old fence.
        return {**names, "now": self._now(), "wall": wall, "idle": wall, "fence": random.getrandbits(48), **more}

    def _values_of(self, claim: DeliveryClaim, hold: timedelta | None, **more: Any) -> dict[str, Any]:
        values = self._values(claim.caller, claim.config.task, claim.config.id, **more)
        only = claim.last if claim.only else 0
        return {**values, "only": only, "fence": claim.fence, "until": values["now"] + hold.total_seconds() if hold else None}


def _release_all(db: sqlite3.Connection, now: float) -> None:
    db.execute("update delivery set held = 0, at = ? where sent < last and held", (now,))


def _next(db: sqlite3.Connection, sql: str, *after: str) -> str | None:
    found: tuple[str] | None = db.execute(sql, after).fetchone()
    return found[0] if found is not None else None


def _set(db: sqlite3.Connection, values: dict[str, Any]) -> _Outcome:
    task = db.execute(f"select key, last, idle_since is not null from task_now where {_OWN}", values).fetchone()
    if task is None:
        return _Outcome.UNKNOWN
    key, last, ended = task
    values = {**values, "key": key, "last": last, "sent": max(last - 1, START) if ended or values["newest"] else last}
    others = db.execute("select count(*) from push_config where task = :key and id <> :config", values).fetchone()[0]
    if others >= values["limit"]:
        return _Outcome.FULL
    for sql in (_SET_CONFIG, _SET_DELIVERY, _SET_ALL_DELIVERIES, _KEEP):
        db.execute(sql, values)
    db.execute("update task set pushes = 1 where key = :key and not pushes", values)
    return _Outcome.SET


def _delete_config(db: sqlite3.Connection, values: dict[str, Any]) -> bool:
    task = db.execute(f"select key from task where {_OWN}", values).fetchone()
    if task is None:
        return False
    for table, column in (("push_config", "id"), ("delivery", "config"), ("dead_letter", "config")):
        db.execute(f"delete from {table} where task = :key and {column} = :config", {**values, "key": task[0]})
    return True


def _redeliver_letter(db: sqlite3.Connection, values: dict[str, Any]) -> bool | None:
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
    task, name, url, host, dialect, token, schemes, credentials, numbers, by_reference = members
    return SealedConfig(
        task=TaskId(task),
        id=name,
        url=url,
        host=host,
        dialect=dialect,
        token=token,
        schemes=tuple(schemes.split()),
        credentials=credentials,
        numbers=bool(numbers),
        by_reference=bool(by_reference),
    )


def _claim_of(row: Sequence[Any], now: float, wall: float) -> DeliveryClaim:
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


def _last_if_claimed(found: tuple[int, int] | None) -> Cursor | None:
    return Cursor(found[0]) if found is not None and found[1] else None
