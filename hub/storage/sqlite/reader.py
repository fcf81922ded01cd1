"""The only read connection. Queries run on its thread."""

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
        self._db = await aiosqlite.connect(self._database, isolation_level=None)
        await self._db.execute_fetchall("pragma query_only = 1")

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
