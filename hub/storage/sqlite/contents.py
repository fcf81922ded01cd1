"""Large contents are written piece by piece, into a row that has no content yet: as values they would be copied twice."""

from __future__ import annotations

import sqlite3

LARGE = 64 * 1024
_PIECE = 1024 * 1024


def is_large(content: bytes) -> bool:
    return len(content) > LARGE


def as_value(content: bytes) -> bytearray:
    """What its row is inserted with: nothing, if it is large. A byte array, because for bytes sqlite3 first searches for an
    adapter.
    """
    return bytearray() if len(content) > LARGE else bytearray(content)


def write_large(db: sqlite3.Connection, table: str, column: str, row_id: int, content: bytes) -> None:
    db.execute(f"update {table} set {column} = zeroblob(?) where rowid = ?", (len(content), row_id))
    view = memoryview(content)
    with db.blobopen(table, column, row_id) as stored:
        for at in range(0, len(content), _PIECE):
            stored.write(view[at : at + _PIECE])
