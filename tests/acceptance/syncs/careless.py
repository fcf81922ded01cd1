"""A hub that acknowledges what is not on disk, to test the checkers: `python -m tests.acceptance.syncs.careless FAULT HELD`.

While the file HELD exists, a hub that is "told too early" commits nothing. The faults replace parts of the engine in this
process only. The product does not contain them.
"""

from __future__ import annotations

import sqlite3
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hub.run import run
from hub.settings.model import load
from hub.storage.sqlite import engine
from hub.storage.sqlite.connections.writer import Writer

LATE = 0.05
"""Seconds between the acknowledgement and the commit."""


class WriterWithoutSync(Writer):
    def __init__(self, connect: Callable[[], sqlite3.Connection], **options: Any) -> None:
        def connect_without_sync() -> sqlite3.Connection:
            db = connect()
            db.execute("pragma synchronous = off")
            return db

        super().__init__(connect_without_sync, **options)


class WriterThatAnswersBeforeCommit(Writer):
    def _commit(self, db: sqlite3.Connection, batch: list[Any]) -> None:
        self._loop.call_soon_threadsafe(self._complete, batch)
        time.sleep(LATE)
        while Path(sys.argv[2]).exists():
            time.sleep(LATE)
        db.execute("commit")
        self._loop.call_soon_threadsafe(self._settle, [])

    def _complete(self, batch: list[Any]) -> None:
        for item in batch:
            item.settle()


FAULTS: dict[str, type[Writer]] = {"no sync": WriterWithoutSync, "told too early": WriterThatAnswersBeforeCommit}


def argv(fault: str, held: Path) -> tuple[str, ...]:
    return (sys.executable, "-m", "tests.acceptance.syncs.careless", fault, str(held))


if __name__ == "__main__":
    engine.Writer = FAULTS[sys.argv[1]]  # type: ignore[attr-defined]
    run(load().settings)
