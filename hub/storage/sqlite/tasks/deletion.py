"""Deletes a task with all that belongs to it: whole, a piece at a time, or so that a summary is left."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from hub.storage.sqlite.files import unbind
from hub.storage.sqlite.summaries import keep_summary
from hub.storage.sqlite.tasks.call_names import free_all_names
from hub.storage.sqlite.tasks.counts import TaskCounts
from hub.storage.sqlite.tasks.rows import PAUSED_STATE
from rolecall.model.ids import Caller, TaskId
from rolecall.model.task import ROW_SIZE, SUMMARY_SIZE

# Limits of one call of `forget`, because other writes wait for it. A task with more events is deleted alone.
FORGET_TASKS = 50
FORGET_EVENTS = 2_000
FORGET_BYTES = 1024 * 1024
"""Of events of a task that is erased."""
EXPIRED = f"""
select key, id, last from (select key, id, last, idle_since from task where idle_since < ?1 order by idle_since limit ?3)
union all
select key, id, last from (
  select key, id, last from task
  where idle_since is null and updated < ?2 and {PAUSED_STATE} limit ?3
)
limit ?3
"""
_STILL_EXPIRED = f"""
select 1 from task where key = ?3 and id = ?4 and (
  idle_since < ?1 or idle_since is null and updated < ?2 and {PAUSED_STATE}
)
"""
_SIZE = f"""
select workspace, {ROW_SIZE} + (select size from task_now where key = ?1) + length(turn_params)
  + (select coalesce(sum(length(params)), 0) from turn where task = ?1)
from task where key = ?1
"""
# Not even `forget` waits for the rest of it. The row of an open task may be behind its log.
_BEGIN_ERASURE = """
update task set hidden = 1, state = 'completed', idle_since = 0,
  last = (select last from task_now where key = ?1), size = (select size from task_now where key = ?1)
where key = ?1
"""
# From the end, so that a reader that lags has no gap.
_NEWEST_EVENTS = """
select min(place), count(*) from (
  select place, sum(bytes) over (order by place desc) - bytes as before from (
    select place, length(body) as bytes from event
    where place > (?1 << 24) and place < ((?1 + 1) << 24) order by place desc limit ?2
  )
) where before < ?3
"""


def within_limit(expired: Sequence[tuple[int, TaskId, int]]) -> Sequence[tuple[int, TaskId, int]]:
    """Rows of EXPIRED that one write may delete."""
    events = 0
    for count, (_, _, last) in enumerate(expired):
        events += last
        if count and events > FORGET_EVENTS:
            return expired[:count]
    return expired


def is_short(expired: Sequence[tuple[int, TaskId, int]]) -> bool:
    """Other writes need not wait long for their deletion."""
    return sum(last for _, _, last in expired) <= FORGET_EVENTS


def still_expired(db: sqlite3.Connection, before: tuple[float, float], key: int, task: TaskId) -> bool:
    """`before`: as for EXPIRED."""
    return db.execute(_STILL_EXPIRED, (*before, key, task)).fetchone() is not None


def erase_piece(db: sqlite3.Connection, counts: TaskCounts, key: int, begun: bool) -> tuple[str, int] | None:
    """As from `delete`; None: there are more events."""
    if not begun:
        _count_as_gone(db, counts, key)
        db.execute(_BEGIN_ERASURE, (key,))
        for table in ("push_config", "delivery", "dead_letter"):
            db.execute(f"delete from {table} where task = ?", (key,))
        free_all_names(db, key)
    lowest, count = db.execute(_NEWEST_EVENTS, (key, FORGET_EVENTS, FORGET_BYTES)).fetchone()
    if count:
        db.execute("delete from event where place >= ? and place < ((? + 1) << 24)", (lowest, key))
    more = db.execute("select 1 from event where place > (?1 << 24) and place < ((?1 + 1) << 24) limit 1", (key,)).fetchone()
    return None if more else delete(db, counts, key)


def replace_by_summary(db: sqlite3.Connection, counts: TaskCounts, key: int, since: float) -> tuple[str, int]:
    """As from `delete`, less the bytes of the summary, if one is kept."""
    kept = keep_summary(db, key, since)
    workspace, size = delete(db, counts, key)
    return workspace, size - SUMMARY_SIZE * kept


def delete(db: sqlite3.Connection, counts: TaskCounts, key: int, files_unused_since: float = 0.0) -> tuple[str, int]:
    """The workspace of the task, and how many bytes it counted."""
    workspace, size = db.execute(_SIZE, (key,)).fetchone()
    free_all_names(db, key)
    db.execute("delete from event where place > (?1 << 24) and place < ((?1 + 1) << 24)", (key,))
    db.execute("delete from turn where task = ?", (key,))
    unbind(db, key, files_unused_since)
    _count_as_gone(db, counts, key)
    db.execute("delete from task where key = ?", (key,))
    return workspace, size


def _count_as_gone(db: sqlite3.Connection, counts: TaskCounts, key: int) -> None:
    """The task is about to be hidden or deleted. A hidden one is not counted."""
    found = db.execute("select workspace, caller, role from task where key = ? and not hidden", (key,)).fetchone()
    if found is not None:
        workspace, name, role = found
        counts.add(Caller(workspace, name), role, -1)
