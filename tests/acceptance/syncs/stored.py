"""What a hub's database holds, read by SQLite alone: the hub has no say in it."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hub.storage import FILE_NAME
from hub.storage.sqlite.events import CURSOR_BITS, LAST_CURSOR
from rolecall.protocol.text.jsontext import parse
from tests.acceptance.syncs.words import WORD
from tests.helpers.client import Reader

PARTS = (FILE_NAME, f"{FILE_NAME}-wal")
_LOGS = f"""
select task.id, event.place & {LAST_CURSOR}, event.body from event join task on task.key = event.place >> {CURSOR_BITS}
order by event.place
"""

_TEXTS = """
select body from event union all select turn_params from task union all select cast(instance as blob) from lease
"""


@dataclass
class Stored:
    """`logs`: every task's events with their cursors. `ends`: the event that each task's row names, and whether it ended."""

    integrity: str
    logs: dict[str, list[tuple[int, dict[str, Any]]]]
    ends: dict[str, tuple[int, bool]]

    @property
    def torn(self) -> list[str]:
        """Logs with a hole, or shorter than their row says, or of another length where the task has ended."""
        return [task for task, row in self.ends.items() if _is_torn([at for at, _ in self.logs.get(task, [])], *row)]


def _is_torn(cursors: list[int], named: int, ended: bool) -> bool:
    return cursors != list(range(1, len(cursors) + 1)) or named > len(cursors) or (ended and named != len(cursors))


def read_still(data_dir: Path, into: Path) -> Stored:
    """Of a hub that was killed, or stands still. A copy is read: the files stay as that hub left them."""
    into.mkdir(parents=True)
    for part in PARTS:
        if (data_dir / part).exists():
            shutil.copy(data_dir / part, into / part)
    return _read(into / FILE_NAME)


def _read(database: Path) -> Stored:
    db = sqlite3.connect(database)
    try:
        integrity = str(db.execute("pragma integrity_check").fetchone()[0])
        rows = db.execute("select id, last, idle_since is not null from task")
        stored = Stored(integrity, {}, {task: (last, bool(ended)) for task, last, ended in rows})
        for task, cursor, body in db.execute(_LOGS):
            stored.logs.setdefault(task, []).append((cursor, parse(body)))
    finally:
        db.close()
    return stored


def words_in(database: Path) -> tuple[str, set[str]]:
    """What the check of integrity says, and every word that is kept in a row."""
    db = sqlite3.connect(database)
    try:
        integrity = str(db.execute("pragma integrity_check").fetchone()[0])
        kept = b" ".join(bytes(text) for (text,) in db.execute(_TEXTS))
    finally:
        db.close()
    return integrity, {match.group().decode() for match in WORD.finditer(kept)}


def lost(stored: Stored, readers: Iterable[Reader]) -> list[str]:
    """What a client was given and the database does not have, in that place and with those contents."""
    found = []
    for reader in readers:
        log = dict(stored.logs.get(reader.task, ()))
        found += [f"{reader.task}/{cursor}" for cursor, event in reader.frames if log.get(cursor) != event]
    return found
