"""The stored changes of tasks: those of the event table, the admissions of the task table, and the discarded tasks."""

from __future__ import annotations

import sqlite3
from functools import lru_cache
from typing import Any

from hub.ports.clock import Clock
from hub.storage.common.task_changes import DISCARDED, PAGE, CallerChanges, ChangePage
from hub.storage.sqlite.connections.readers import ListReaders
from rolecall.model.a2a import EventKind, TaskState
from rolecall.model.call import digest
from rolecall.model.ids import Caller, Cursor, TaskId, WorkerId
from rolecall.model.task import TaskChange

# Each part is a range of an index, and a page has as many rows as were read of it: with fewer, there were no more. A discarded
# task is told to those who may have seen its admission, which is no longer stored.
_PAGE = f"""
with changes (revision, key, at, kind, state) as (
  select * from (
    select revision, place >> 24, place & {(1 << 24) - 1}, kind, state from event
    where feed = ?1 and revision > ?2 order by revision limit ?3
  )
  union all
  select * from (
    select admitted, key, 0, '', '{TaskState.SUBMITTED}' from task where feed = ?1 and admitted > ?2 order by admitted limit ?3
  )
)
select changes.revision, at, kind = '{EventKind.MESSAGE}', changes.state, workspace, caller, id, role, worker, context,
  (select parent from branch where branch.task = changes.key), created, hidden and idle_since = 0
from changes join task using (key)
union all
select * from (
  select revision, 0, 1, '{TaskState.SUBMITTED}', workspace, caller, id, role, worker, context, parent, created, 0
  from discarded where feed = ?1 and revision > ?2 and admitted <= ?2 order by revision limit ?3
)
order by 1 limit ?3
"""
_NEWEST_OF = """
select max(
  coalesce((select max(revision) from event where feed = ?1 and revision is not null), 0),
  coalesce((select max(admitted) from task where feed = ?1 and admitted is not null), 0),
  coalesce((select max(revision) from discarded where feed = ?1), 0))
"""
# Jumps from feed to feed in the index.
_NEWEST_OF_ALL = """
with recursive feeds (feed) as (
  select min(feed) from {table} where {revision} is not null
  union all
  select (select min(feed) from {table} where feed > feeds.feed and {revision} is not null) from feeds where feed is not null
)
select max((select max({revision}) from {table} where {table}.feed = feeds.feed and {revision} is not null)) from feeds
"""
NEWEST_CHANGE = _NEWEST_OF_ALL.format(table="event", revision="revision")
NEWEST_ADMISSION = _NEWEST_OF_ALL.format(table="task", revision="admitted")
_NEWEST_DISCARDED = "select max(revision) from discarded"
_DISCARD = """
insert into discarded
select feed, ?2, admitted, workspace, caller, id, role, worker, context,
  (select parent from branch where branch.task = key), created
from task where key = ?1 and admitted is not null
returning feed
"""
_LIMIT_DISCARDED = f"""
delete from discarded where feed = ?1
and revision <= (select revision from discarded where feed = ?1 order by revision desc limit 1 offset {DISCARDED})
"""
_FORGET_DISCARDED = """
delete from discarded where feed = ?1 and workspace = ?2 and caller = ?3 and (?4 is null or context = ?4)
"""
OLD_DISCARDED = "select feed, revision from discarded where revision < ? * 1000000 order by revision limit ?"
DROP_DISCARDED = "delete from discarded where feed = ? and revision = ?"


class SqliteChanges(CallerChanges):
    def __init__(self, clock: Clock, lists: ListReaders) -> None:
        super().__init__(clock)
        self._lists = lists

    async def load(self) -> None:
        for newest in (NEWEST_CHANGE, NEWEST_ADMISSION, _NEWEST_DISCARDED):
            ((revision,),) = await self._lists.rows(newest)
            self.continue_after(revision or 0)

    async def newest_of(self, caller: Caller) -> int:
        ((revision,),) = await self._lists.rows(_NEWEST_OF, (feed_of(caller),))
        return int(revision)

    async def page(self, caller: Caller, after: int) -> ChangePage:
        rows = await self._lists.rows(_PAGE, (feed_of(caller), after, PAGE))
        changes = [_change(row) for row in rows if not row[-1]]
        own = [change for change in changes if change.caller == caller]  # two callers may have the same hash
        return ChangePage(own, rows[-1][0] if len(rows) == PAGE else None)


@lru_cache(maxsize=4096)
def feed_of(caller: Caller) -> int:
    return int.from_bytes(digest(*caller)[:8], "big", signed=True)


def keep_discarded(db: sqlite3.Connection, key: int, revision: int) -> bool:
    """Called before the task is deleted. False: its admission, by an older hub, was no change."""
    kept = db.execute(_DISCARD, (key, revision)).fetchone()
    if kept is not None:
        db.execute(_LIMIT_DISCARDED, kept)
    return kept is not None


def forget_discarded(db: sqlite3.Connection, caller: Caller, context: str | None) -> None:
    db.execute(_FORGET_DISCARDED, (feed_of(caller), *caller, context))


def _change(row: tuple[Any, ...]) -> TaskChange:
    revision, at, gone, state, workspace, caller, task, role, worker, context, parent, created, _ = row
    return TaskChange(
        revision=revision,
        caller=Caller(workspace, caller),
        id=TaskId(task),
        role=role,
        worker=WorkerId.of(worker) if worker is not None else None,
        context=context,
        parent=TaskId(parent) if parent is not None else None,
        created=created,
        state=TaskState.COMPLETED if gone and at else TaskState(state),
        at=Cursor(at),
        gone=bool(gone),
    )
