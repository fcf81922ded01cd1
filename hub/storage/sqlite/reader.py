"""The read connection of calls. Queries run on its thread, so each must be short: those of lists have their own."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiosqlite

from rolecall.errors import StoreUnavailable


class SqliteReader:
    def __init__(self, database: Path) -> None:
        self._database = database
        self._db: aiosqlite.Connection | None = None

    async def start(self) -> None:
        self._db = await open_reader(self._database)

    async def close(self) -> None:
        if self._db is not None:
            await self._db.close()
            self._db = None

    async def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        if self._db is None:
            raise StoreUnavailable
        try:
            return [tuple(row) for row in await self._db.execute_fetchall(sql, parameters)]
        except (sqlite3.Error, ValueError) as error:
            raise StoreUnavailable from error


async def open_reader(database: Path) -> aiosqlite.Connection:
    db = await aiosqlite.connect(database, isolation_level=None)
    await db.execute_fetchall("pragma query_only = 1")
    return db
