"""How many tasks each caller has in each role, so that a list has its total without counting."""

from __future__ import annotations

import sqlite3

from rolecall.model.ids import Caller

_ADD = """
insert into tally values (?, ?, ?, ?) on conflict do update set tasks = tasks + excluded.tasks
"""
_DROP_EMPTY = "delete from tally where workspace = ? and caller = ? and role = ? and tasks = 0"


class TaskCounts:
    """Work adds what it changes, and the writer stores the sums of a batch at its end: calls that come together change a row
    once. A trigger would do it for each, and make SQLite prepare to undo every statement alone.
    """

    def __init__(self) -> None:
        self._changes: dict[tuple[Caller, str], int] = {}

    def begin(self) -> None:
        """Of a batch, or of its repetition."""
        self._changes.clear()

    def add(self, caller: Caller, role: str, count: int) -> None:
        """`count`: tasks that have come, or gone if it is negative."""
        self._changes[caller, role] = self._changes.get((caller, role), 0) + count

    def store(self, db: sqlite3.Connection) -> None:
        for (caller, role), count in self._changes.items():
            if count:
                db.execute(_ADD, (*caller, role, count))
            if count < 0:
                db.execute(_DROP_EMPTY, (*caller, role))
