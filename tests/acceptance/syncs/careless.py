"""A hub that acknowledges what is not on disk, to test the checkers: `python -m tests.acceptance.syncs.careless FAULT`.

The faults replace parts of the engine in this process only. The product does not contain them.
"""

from __future__ import annotations

import sqlite3
import sys
import time
from collections.abc import Callable
from typing import Any

from hub.app import run
from hub.settings.model import load
from hub.storage.sqlite.engine import SqliteEngine
from hub.storage.sqlite.writer import Writer

LATE = 0.05
"""Seconds between the acknowledgement and the commit."""


def commit_without_sync() -> None:
    connect = SqliteEngine._connect

    def connect_without_sync(engine: SqliteEngine) -> sqlite3.Connection:
        db = connect(engine)
        db.execute("pragma synchronous = off")
        return db

    SqliteEngine._connect = connect_without_sync  # type: ignore[method-assign, assignment]


def complete_before_commit() -> None:
    def complete(batch: list[Any]) -> None:
        for item in batch:
            item.settle()

    def commit(writer: Writer, db: sqlite3.Connection, batch: list[Any]) -> None:
        writer._loop.call_soon_threadsafe(complete, batch)
        time.sleep(LATE)
        db.execute("commit")
        writer._loop.call_soon_threadsafe(writer._settle, [])

    Writer._commit = commit  # type: ignore[method-assign, assignment]


FAULTS: dict[str, Callable[[], None]] = {
    "no sync": commit_without_sync,
    "told too early": complete_before_commit,
}


def argv(fault: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "tests.acceptance.syncs.careless", fault)


if __name__ == "__main__":
    FAULTS[sys.argv[1]]()
    run(load().settings)
