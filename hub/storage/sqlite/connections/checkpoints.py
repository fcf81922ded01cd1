"""Copies the write-ahead log into the database on a separate thread. If a commit did this, it would delay all other writes."""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

log = logging.getLogger(__name__)

_EVERY_SECONDS = 0.5
_RESTART_PAGES = 4_000
"""When the log has this many pages, it is restarted from its beginning."""
CHECKPOINT = "pragma wal_checkpoint(passive)"
FULL_SYNC = "fullfsync = on"
"""On macOS a sync leaves the bytes in the memory of the disk without this; elsewhere it means nothing."""


class Checkpoints:
    """`commit_count` returns the number of commits so far: without new ones there is nothing to do. `restart_log` is called on
    this thread when the log is long. Its last pages can be copied, and the log restarted, only while nothing is written.
    `look` is called on it each time.
    """

    def __init__(
        self,
        database: Path,
        commit_count: Callable[[], int],
        restart_log: Callable[[], None],
        *,
        look: Callable[[], None] = lambda: None,
        interval: float = _EVERY_SECONDS,
        restart_pages: int = _RESTART_PAGES,
    ) -> None:
        self._interval = interval
        self._restart_pages = restart_pages
        self._database = database
        self._commit_count = commit_count
        self._restart_log = restart_log
        self._look = look
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="sqlite checkpoints", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Waits for a checkpoint that is under way."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        last_count = 0
        db = sqlite3.connect(self._database, isolation_level=None)
        try:
            for pragma in ("synchronous = full", FULL_SYNC):
                db.execute(f"pragma {pragma}")
            while not self._closed.wait(self._interval):
                self._look()
                if last_count != (commit_count := self._commit_count()):
                    last_count = commit_count
                    self._checkpoint(db)
        finally:
            db.close()

    def _checkpoint(self, db: sqlite3.Connection) -> None:
        try:
            _, log_pages, _ = db.execute(CHECKPOINT).fetchone()
        except sqlite3.Error as error:
            log.warning("checkpoint failed", extra={"event": "checkpoint_failed", "why": type(error).__name__})
            return
        if log_pages > self._restart_pages:
            self._restart_log()
