"""Databases in which nothing is stored yet: their migrations take longer than most tests, and wait often for the disk."""

from __future__ import annotations

import asyncio
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from hub.storage.sqlite.engine import SqliteEngine
from tests.helpers.clock import ManualClock


def empty_database(database: Path) -> Path:
    """A copy of a database that an engine has opened and closed."""
    database.parent.mkdir(parents=True, exist_ok=True)
    database.write_bytes(_content())
    return database


@cache
def _content() -> bytes:
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(1) as thread:  # a test may run a loop in this one
        database = Path(folder, "hub.db")
        thread.submit(asyncio.run, _open_and_close(database)).result()
        return database.read_bytes()


async def _open_and_close(database: Path) -> None:
    async with SqliteEngine(database, ManualClock()):
        pass
