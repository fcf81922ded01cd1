"""The names of calls, by which a repeated message is recognised."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from rolecall.model.call import CallName
from rolecall.model.ids import Cursor

# Takes the name if it is free. A call without a task, or whose task ended before ?5, has no right to it any more.
_ADD_CALL = """
insert into call (name, task, began, content) values (?1, ?2, ?3, ?4)
on conflict (name) do update set task = excluded.task, began = excluded.began, content = excluded.content
where call.content = x'' and not exists (
  select 1 from task where key = call.task and (idle_since is null or updated > ?5)
)
"""
FIND_CALL = """
select task.id, task.role, call.began, call.content from call join task on task.key = call.task
where name = ?1 and (call.content <> x'' or idle_since is null or updated > ?2)
"""
# A name that was free may be a later task's by now.
_FREE_NAME = "delete from call where name = ? and task = ?"
_NAMES = "select names from task where key = ?1 union all select names from turn where task = ?1"
_NAME_BYTES = 16
_FORGET_NAME = f"{_FREE_NAME} and content = x''"
# The last of a piece of the tasks that ended in that time, by idle_since, and their number.
ENDED = """
select max(idle_since), count(*) from (
  select idle_since from task where idle_since > ?1 and idle_since <= ?2 order by idle_since limit ?3
)
"""
_NAMES_OF_ENDED = """
select key, names from task where idle_since > ?1 and idle_since <= ?2
union all
select key, turn.names from task join turn on turn.task = task.key where idle_since > ?1 and idle_since <= ?2
"""


def add_names(db: sqlite3.Connection, key: int, began: Cursor, names: Sequence[CallName], free_before: float) -> bool:
    """Store all names of a task's call, or none. False: one of them is an earlier call's."""
    for at, name in enumerate(names):
        # As byte arrays: see `_KIND_TEXT` in events.py.
        if db.execute(_ADD_CALL, (bytearray(name.digest), key, began, bytearray(name.content), free_before)).rowcount != 1:
            db.executemany(_FREE_NAME, [(added.digest, key) for added in names[:at]])
            return False
    return True


def joined(names: Sequence[CallName]) -> bytearray:
    """As they are stored with their message, by which they are found when it goes: an index by task would cost a page."""
    return bytearray().join([name.digest for name in names])


def free_names(db: sqlite3.Connection, key: int, names: bytes) -> None:
    """`names`: as from `joined`."""
    db.executemany(_FREE_NAME, _split(key, names))


def free_all_names(db: sqlite3.Connection, key: int) -> None:
    """Those of all messages of the task."""
    for (names,) in db.execute(_NAMES, (key,)).fetchall():
        free_names(db, key, names)


def forget_names(db: sqlite3.Connection, after: float, upto: float) -> None:
    """Those made of messages, of the tasks that ended in that time."""
    for key, names in db.execute(_NAMES_OF_ENDED, (after, upto)).fetchall():
        db.executemany(_FORGET_NAME, _split(key, names))


def _split(key: int, names: bytes) -> list[tuple[bytes, int]]:
    return [(names[at : at + _NAME_BYTES], key) for at in range(0, len(names), _NAME_BYTES)]
