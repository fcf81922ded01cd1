"""The one writer: a thread that commits whatever has queued up while its last commit ran (docs/decisions/0001)."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from hub.errors import HubError, StoreUnavailable

T = TypeVar("T")

# Everything that waits for its commit. A relay has one append under way, so this many tasks write at once at most.
QUEUE_LIMIT = 20_000
BATCH_LIMIT = 1_000
# What a value that cannot be stored raises: that item's own fault, and not its batch's.
_ITEM_FAULTS = (
    sqlite3.IntegrityError,
    sqlite3.DataError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
    ValueError,
    OverflowError,
)


class _Item(Generic[T]):
    __slots__ = ("error", "future", "result", "then", "work")

    def __init__(
        self, work: Callable[[sqlite3.Connection], T], then: Callable[[T], None] | None, future: asyncio.Future[T]
    ) -> None:
        self.work = work
        self.then = then
        self.future = future
        self.result: T | None = None
        self.error: Exception | None = None

    def settle(self) -> None:
        """Tell the loop's side. `then` runs even if nobody waits any more: what is committed has to be known."""
        if self.error is not None:
            if not self.future.done():
                self.future.set_exception(self.error)
            return
        result: Any = self.result
        if self.then is not None:
            self.then(result)
        if not self.future.done():
            self.future.set_result(result)


class Writer:
    """Work is run in the order in which it was submitted, many pieces in one transaction, and settled in that order.

    A piece that cannot be stored fails alone. If the transaction fails, all its pieces do, and nothing of it is kept.
    """

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connect = connect
        self._queue: SimpleQueue[_Item[Any] | None] = SimpleQueue()
        self._waiting = 0
        self._open = False
        self.commits = 0

    async def start(self) -> None:
        """Errors of `connect` come out here."""
        self._loop = asyncio.get_running_loop()
        self._ended = self._loop.create_future()
        started: asyncio.Future[None] = self._loop.create_future()
        # A daemon, so that a process that forgot to close the engine can still exit; what was acknowledged is on disk.
        threading.Thread(target=self._run, args=(started,), name="sqlite writer", daemon=True).start()
        await started
        self._open = True

    def submit(self, work: Callable[[sqlite3.Connection], T], then: Callable[[T], None] | None = None) -> asyncio.Future[T]:
        """The future of a piece of work, done when it is durable. `then` runs on the loop just before."""
        if not self._open or self._waiting >= QUEUE_LIMIT:
            raise StoreUnavailable
        future: asyncio.Future[T] = self._loop.create_future()
        self._waiting += 1
        self._queue.put(_Item(work, then, future))
        return future

    async def close(self) -> None:
        """Everything submitted is written first."""
        if self._open:
            self._open = False
            self._queue.put(None)
            await asyncio.shield(self._ended)

    # --- on the loop

    def _settle(self, batch: list[_Item[Any]]) -> None:
        self._waiting -= len(batch)
        for item in batch:
            item.settle()

    def _settle_start(self, started: asyncio.Future[None], error: Exception | None) -> None:
        if started.done():
            return
        if error is None:
            started.set_result(None)
        else:
            started.set_exception(error)

    def _settle_end(self, left: list[_Item[Any]]) -> None:
        """A thread that broke must not leave anybody waiting."""
        self._open = False
        while not self._queue.empty():
            left.extend(item for item in [self._queue.get_nowait()] if item is not None)
        for item in left:
            item.error = StoreUnavailable()
        self._settle(left)
        if not self._ended.done():
            self._ended.set_result(None)

    # --- on the thread

    def _run(self, started: asyncio.Future[None]) -> None:
        try:
            db = self._connect()
        except (sqlite3.Error, OSError, HubError) as error:
            self._loop.call_soon_threadsafe(self._settle_start, started, error)
            return
        self._loop.call_soon_threadsafe(self._settle_start, started, None)
        batch: list[_Item[Any]] = []
        try:
            while batch := self._next_batch():
                self._write(db, batch)
                self._loop.call_soon_threadsafe(self._settle, batch)
        finally:
            db.close()
            self._loop.call_soon_threadsafe(self._settle_end, batch)

    def _next_batch(self) -> list[_Item[Any]]:
        """Empty: there will be no more."""
        batch: list[_Item[Any]] = []
        item = self._queue.get()
        while item is not None:
            batch.append(item)
            if len(batch) >= BATCH_LIMIT or self._queue.empty():
                return batch
            item = self._queue.get_nowait()
        if batch:
            self._queue.put(None)  # seen, but first comes what was submitted before it
        return batch

    def _write(self, db: sqlite3.Connection, batch: list[_Item[Any]]) -> None:
        try:
            self._transact(db, batch)
        except (sqlite3.Error, ValueError, OverflowError) as error:
            if db.in_transaction:
                db.rollback()
            if isinstance(error, _ITEM_FAULTS) and len(batch) > 1:
                for item in batch:
                    self._write(db, [item])
                return
            for item in batch:
                item.error = StoreUnavailable()
                item.error.__cause__ = error

    def _transact(self, db: sqlite3.Connection, batch: list[_Item[Any]]) -> None:
        db.execute("begin immediate")
        for item in batch:
            item.result = item.work(db)
        db.execute("commit")
        self.commits += 1
