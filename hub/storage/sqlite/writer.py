"""The one writer: commits whatever has queued up while its last commit ran (docs/decisions/0001 and 0008)."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from rolecall.errors import HubError, StoreUnavailable

T = TypeVar("T")
log = logging.getLogger(__name__)

# Everything that waits for its commit. A relay has one append under way, so this many tasks write at once at most.
QUEUE_LIMIT = 20_000
BATCH_LIMIT = 500
BUSY_MS = 5_000
"""How long another process may hold the database before nothing can be stored."""
_TURNS = 2
"""For so many turns of the loop, and never for a time, a batch waits for company: a commit for fifty costs little more."""
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
    __slots__ = ("brief", "error", "future", "result", "then", "work")

    def __init__(
        self,
        work: Callable[[sqlite3.Connection], T],
        then: Callable[[T], None] | None,
        future: asyncio.Future[T],
        brief: bool,
    ) -> None:
        self.brief = brief
        self.work = work
        self.then = then
        self.future = future
        self.result: T | None = None
        self.error: Exception | None = None

    def settle(self) -> None:
        """Tell the loop's side. `then` runs even if nobody waits any more: what is committed has to be known."""
        result: Any = self.result
        try:
            if self.error is None and self.then is not None:
                self.then(result)
        except BaseException as bug:
            self.error = StoreUnavailable()
            self.error.__cause__ = bug
            raise
        finally:
            if not self.future.done():
                if self.error is not None:
                    self.future.set_exception(self.error)
                else:
                    self.future.set_result(result)


class Writer:
    """Work is run in the order in which it was submitted, many pieces in one transaction, and settled in that order.

    A piece that cannot be stored fails alone. If the transaction fails, all its pieces do, and nothing of it is kept.

    The connection belongs to the loop or to the thread, never to both: whoever has a batch under way. A batch of brief pieces
    is run on the loop and only its commit, which waits for the disk, on the thread (docs/decisions/0008). Any other batch is
    the thread's from beginning to end.
    """

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connect = connect
        self._queue: deque[_Item[Any]] = deque()
        self._orders: SimpleQueue[Callable[[sqlite3.Connection], None] | None] = SimpleQueue()
        self._batch: list[_Item[Any]] = []
        self._chore: Callable[[sqlite3.Connection], object] | None = None
        self._waiting = 0
        self._open = False
        self._busy = False
        self._db: sqlite3.Connection
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

    def submit(
        self, work: Callable[[sqlite3.Connection], T], then: Callable[[T], None] | None = None, *, brief: bool = False
    ) -> asyncio.Future[T]:
        """The future of a piece of work, done when it is durable. `then` runs on the loop just before. `brief`: a few rows
        that are found by their keys.
        """
        if not self._open or self._waiting >= QUEUE_LIMIT:
            raise StoreUnavailable
        future: asyncio.Future[T] = self._loop.create_future()
        self._waiting += 1
        self._queue.append(_Item(work, then, future, brief))
        if not self._busy:
            self._busy = True
            self._loop.call_soon(self._gather, 0, 0)
        return future

    def between(self, maintenance: Callable[[sqlite3.Connection], object]) -> None:
        """Do this on the thread, once, when no batch is under way. Only the last one that was asked for is done."""
        self._chore = maintenance
        if self._open and not self._busy:
            self._busy = True
            self._next()

    async def close(self) -> None:
        """Everything submitted is written first."""
        if self._open:
            self._open = False
            if not self._busy:
                self._orders.put(None)
            await asyncio.shield(self._ended)

    # --- on the loop

    def _gather(self, turns: int, were: int) -> None:
        """Begin a batch once a turn of the loop has brought nothing more for it, or after a few turns."""
        waiting = len(self._queue)
        if waiting > were and turns < _TURNS:
            self._loop.call_soon(self._gather, turns + 1, waiting)
        else:
            self._next()

    def _next(self) -> None:
        """Everything that has come, up to a limit, as one batch."""
        if self._chore is not None:
            maintenance, self._chore = self._chore, None
            self._orders.put(lambda db: self._do(db, maintenance))
            return
        batch = self._batch = [self._queue.popleft() for _ in range(min(len(self._queue), BATCH_LIMIT))]
        if not batch:
            self._busy = False
            if not self._open:
                self._orders.put(None)
            return
        order = self._write
        try:
            if all(item.brief for item in batch) and self._run_here(batch):
                order = self._commit
        except BaseException:
            self._orders.put(None)  # a bug: see _settle_end
            raise
        self._orders.put(lambda db: order(db, batch))

    def _run_here(self, batch: list[_Item[Any]]) -> bool:
        """False: something is in the way, such as another process's lock, and the thread has to wait for it or tell."""
        db = self._db
        try:
            db.execute("begin immediate")
            for item in batch:
                item.result = item.work(db)
        except (sqlite3.Error, ValueError, OverflowError):
            if db.in_transaction:
                db.rollback()
            return False
        return True

    def _settle(self, batch: list[_Item[Any]]) -> None:
        self._waiting -= len(batch)
        self._tell(iter(batch))

    def _tell(self, batch: Iterator[_Item[Any]]) -> None:
        """A bug in what one of them wanted to know is that one's alone: the loop tells of it, and the others go on."""
        all_told = False
        try:
            for item in batch:
                item.settle()
            all_told = True
        finally:
            if all_told:
                self._gather(0, 0)
            else:
                self._loop.call_soon(self._tell, batch)

    def _settle_start(self, started: asyncio.Future[None], error: Exception | None) -> None:
        if started.done():
            return
        if error is None:
            started.set_result(None)
        else:
            started.set_exception(error)

    def _settle_end(self) -> None:
        """A thread that broke must not leave anybody waiting."""
        self._open = False
        left = [*self._batch, *self._queue]
        self._batch = []
        self._queue.clear()
        for item in left:
            item.error = StoreUnavailable()
            item.settle()
        if not self._ended.done():
            self._ended.set_result(None)

    # --- on the thread

    def _run(self, started: asyncio.Future[None]) -> None:
        try:
            db = self._db = self._connect()
        except (sqlite3.Error, OSError, HubError) as error:
            self._loop.call_soon_threadsafe(self._settle_start, started, error)
            return
        self._loop.call_soon_threadsafe(self._settle_start, started, None)
        try:
            while (order := self._orders.get()) is not None:
                order(db)
        finally:
            db.close()
            self._loop.call_soon_threadsafe(self._settle_end)

    def _commit(self, db: sqlite3.Connection, batch: list[_Item[Any]]) -> None:
        try:
            db.execute("commit")
            self.commits += 1
        except sqlite3.Error as error:
            self._fail(db, batch, error)
        self._loop.call_soon_threadsafe(self._settle, batch)

    def _do(self, db: sqlite3.Connection, maintenance: Callable[[sqlite3.Connection], object]) -> None:
        try:
            maintenance(db)
        except sqlite3.Error as error:
            log.warning("a chore of the writer failed", extra={"event": "chore_failed", "why": type(error).__name__})
        self._loop.call_soon_threadsafe(self._next)

    def _write(self, db: sqlite3.Connection, batch: list[_Item[Any]]) -> None:
        db.execute(f"pragma busy_timeout = {BUSY_MS}")
        self._write_together(db, batch)
        db.execute("pragma busy_timeout = 0")
        self._loop.call_soon_threadsafe(self._settle, batch)

    def _write_together(self, db: sqlite3.Connection, batch: list[_Item[Any]]) -> None:
        try:
            db.execute("begin immediate")
            for item in batch:
                item.result = item.work(db)
            db.execute("commit")
            self.commits += 1
        except (sqlite3.Error, ValueError, OverflowError) as error:
            self._fail(db, batch, error)

    def _fail(self, db: sqlite3.Connection, batch: list[_Item[Any]], error: Exception) -> None:
        if db.in_transaction:
            db.rollback()
        if isinstance(error, _ITEM_FAULTS) and len(batch) > 1:
            for item in batch:
                self._write_together(db, [item])
            return
        for item in batch:
            item.error = StoreUnavailable()
            item.error.__cause__ = error
