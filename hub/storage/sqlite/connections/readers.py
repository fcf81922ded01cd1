"""Read connections: one for the short queries of calls, and others for lists, so that a long one delays no call."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import aiosqlite

from rolecall.errors import StoreUnavailable

_Rows = Iterable[sqlite3.Row]
_INTERRUPT_EVERY = 0.01
"""Seconds. To interrupt a statement that has not begun has no effect, so it is done again."""


class SqliteReader:
    """The connection of calls. Queries run on its thread, one at a time."""

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


class ListReaders:
    """Each running statement has a connection of its own: there are as many as statements ran at once. What it reads is told
    when `settled` returns: nobody gets what the writer has not told the readers of its task yet.
    """

    def __init__(self, database: Path, settled: Callable[[], Awaitable[None]]) -> None:
        self._database = database
        self._settled = settled
        self._open = False
        self._idle: list[aiosqlite.Connection] = []
        self._running: dict[asyncio.Task[_Rows], aiosqlite.Connection] = {}

    def start(self) -> None:
        self._open = True

    async def close(self) -> None:
        """Interrupts what runs."""
        self._open = False
        for statement, db in tuple(self._running.items()):
            await _interrupt(db, statement)
        await asyncio.sleep(0)  # the connections come back
        while self._idle:
            await self._idle.pop().close()

    async def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """When it is cancelled, the statement is interrupted."""
        if not self._open:
            raise StoreUnavailable
        try:
            while not self._idle:
                await asyncio.shield(asyncio.create_task(self._add_one(), name="opening a reader of lists"))
            db = self._idle.pop()
            statement = asyncio.create_task(_fetch(db, sql, parameters), name="reading a list")
            self._running[statement] = db
            statement.add_done_callback(self._take_back)
            try:
                rows = [tuple(row) for row in await asyncio.shield(statement)]
            except asyncio.CancelledError:
                await _interrupt(db, statement)
                raise
        except (sqlite3.Error, ValueError) as error:
            raise StoreUnavailable from error
        await self._settled()
        return rows

    async def _add_one(self) -> None:
        self._idle.append(await open_reader(self._database))

    def _take_back(self, statement: asyncio.Task[_Rows]) -> None:
        """Not before its thread has ended the statement, however often the caller is cancelled."""
        self._idle.append(self._running.pop(statement))
        if not statement.cancelled():
            statement.exception()  # nobody may be left to retrieve it


async def _fetch(db: aiosqlite.Connection, sql: str, parameters: Sequence[Any]) -> _Rows:
    return await db.execute_fetchall(sql, parameters)


async def _interrupt(db: aiosqlite.Connection, statement: asyncio.Task[_Rows]) -> None:
    while not statement.done():
        await db.interrupt()
        await asyncio.wait([statement], timeout=_INTERRUPT_EVERY)


async def open_reader(database: Path) -> aiosqlite.Connection:
    db = await aiosqlite.connect(database, isolation_level=None)
    await db.execute_fetchall("pragma query_only = 1")
    return db
