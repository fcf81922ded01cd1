"""The disk under SQLite: a test makes commits fail, or blocks them."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

_LONGEST = 10


class Disk:
    """Applies to every connection that is opened after `install`."""

    def __init__(self) -> None:
        self.commits = 0
        """Successful commits."""
        self._failing = 0
        self._free = threading.Event()
        self._free.set()

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        disk = self

        class Connection(sqlite3.Connection):
            def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
                if sql == "commit":
                    disk.commit()
                return super().execute(sql, *parameters)

        monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Connection))

    def fail_commits(self, times: int = 1) -> None:
        """All statements of the next `times` transactions run, then their commit fails."""
        self._failing += times

    @contextmanager
    def block_commits(self) -> Iterator[None]:
        """No commit ends inside. Reads work."""
        self._free.clear()
        try:
            yield
        finally:
            self._free.set()

    def commit(self) -> None:
        self._free.wait(_LONGEST)
        if self._failing:
            self._failing -= 1
            raise sqlite3.OperationalError("disk I/O error")
        self.commits += 1
