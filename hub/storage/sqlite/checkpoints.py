"""Moves what the write-ahead log holds into the database, beside the writer: a commit that had to do so would be the one in a
hundred that everybody waits for.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

log = logging.getLogger(__name__)

_EVERY = 0.5
_LONG = 4_000
"""Pages. A log that has grown to this is to be begun anew."""
CHECKPOINT = "pragma wal_checkpoint(passive)"


class Checkpoints:
    """`written` tells how many commits there were: without new ones there is nothing to do. `finish` is called, on this thread,
    when the log is long: only while nobody writes can the last pages be moved, and only then does it begin anew.
    """

    def __init__(self, database: Path, written: Callable[[], int], finish: Callable[[], None]) -> None:
        self._database = database
        self._written = written
        self._finish = finish
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="sqlite checkpoints", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Waits for the one under way."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        seen = 0
        db = sqlite3.connect(self._database, isolation_level=None)
        try:
            db.execute("pragma synchronous = full")
            while not self._over.wait(_EVERY):
                if seen != (written := self._written()):
                    seen = written
                    self._look(db)
        finally:
            db.close()

    def _look(self, db: sqlite3.Connection) -> None:
        try:
            _, pages, _ = db.execute(CHECKPOINT).fetchone()
        except sqlite3.Error as error:
            log.warning("no checkpoint", extra={"event": "checkpoint_failed", "why": type(error).__name__})
            return
        if pages > _LONG:
            self._finish()
