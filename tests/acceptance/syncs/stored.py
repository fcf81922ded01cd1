"""The contents of a hub's database, read by SQLite without code of the hub."""

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
    """`logs`: each task's events with their cursors. `rows`: the last event in each task's row, and whether it ended."""

    integrity: str
    logs: dict[str, list[tuple[int, dict[str, Any]]]]
    rows: dict[str, tuple[int, bool]]

    @property
    def incomplete(self) -> list[str]:
        """Tasks whose log has a gap or is shorter than their row, or differs from it after the task has ended."""
        return [task for task, row in self.rows.items() if _is_incomplete([at for at, _ in self.logs.get(task, [])], *row)]


def _is_incomplete(cursors: list[int], named: int, ended: bool) -> bool:
    return cursors != list(range(1, len(cursors) + 1)) or named > len(cursors) or (ended and named != len(cursors))


def read_still(data_dir: Path, folder: Path) -> Stored:
    """The database of a killed or paused hub. A copy is read, so that the files do not change."""
    folder.mkdir(parents=True)
    for part in PARTS:
        if (data_dir / part).exists():
            shutil.copy(data_dir / part, folder / part)
    return _read(folder / FILE_NAME)


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
    """The result of the integrity check, and every word in the database."""
    db = sqlite3.connect(database)
    try:
        integrity = str(db.execute("pragma integrity_check").fetchone()[0])
        kept = b" ".join(bytes(text) for (text,) in db.execute(_TEXTS))
    finally:
        db.close()
    return integrity, {match.group().decode() for match in WORD.finditer(kept)}


def lost(stored: Stored, readers: Iterable[Reader]) -> list[str]:
    """Events that a client received and that the database does not have at that cursor with that content."""
    missing = []
    for reader in readers:
        log = dict(stored.logs.get(reader.task, ()))
        missing += [f"{reader.task}/{cursor}" for cursor, event in reader.frames if log.get(cursor) != event]
    return missing
