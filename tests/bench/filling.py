"""A million finished tasks in a hub's database: copies of one task that the hub stored, made while the hub is stopped."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

_CURSOR_BITS = 24
_SPAN = 20 * 3600.0
"""The end times of the copies are spread evenly over these hours. All are later than a retention of one day."""
_OWN = ("key", "id", "context", "worker_task", "worker_context", "created", "updated", "idle_since", "turn_message")
_NUMBERS = "with recursive n(i) as (select 1 union all select i + 1 from n where i < :count)"


def fill(database: Path, count: int) -> None:
    """Copies with unique ids, contexts and times, and without revisions. One sync at the end, so that the hub does not wait for
    it later.
    """
    with closing(sqlite3.connect(database, isolation_level=None)) as db:
        for pragma in ("journal_mode = off", "synchronous = off", "cache_size = -200000"):
            db.execute(f"pragma {pragma}").fetchall()
        source, top = db.execute("select key, (select max(key) from task) from task where idle_since is not null").fetchone()
        columns = [row[1] for row in db.execute("pragma table_info(task)")]
        same = ", ".join(name for name in columns if name not in (*_OWN, "admitted"))
        ended = "(select idle_since from task where key = :source)"
        values = {"source": source, "top": top, "count": count, "span": _SPAN}
        db.execute("begin")
        db.execute(
            f"""insert into task ({", ".join(_OWN)}, {same}) {_NUMBERS}
            select :top + i, printf('%08x-0000-7000-8000-%012x', i / 65536, i), 'c-' || i, 'w-' || i, 'c-' || i,
              {ended} - :span * (:count + 1 - i) / :count, {ended} - :span * (:count + 1 - i) / :count,
              {ended} - :span * (:count + 1 - i) / :count, 'm-' || i, {same}
            from n cross join task where key = :source""",
            values,
        )
        db.execute(
            f"""insert into event (place, kind, state, dialect, body) {_NUMBERS}
            select ((:top + i) << {_CURSOR_BITS}) + (place & {(1 << _CURSOR_BITS) - 1}), kind, state, dialect, body
            from n cross join event
            where place > (:source << {_CURSOR_BITS}) and place < ((:source + 1) << {_CURSOR_BITS})""",
            values,
        )
        db.execute("commit")
        db.execute("pragma journal_mode = wal").fetchall()
    with database.open("rb") as file:
        os.fsync(file.fileno())
