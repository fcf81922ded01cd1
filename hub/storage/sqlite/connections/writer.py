"""The only writer. A commit includes everything that was queued during the last commit (docs/decisions/0001 and 0008)."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from hub.storage.sqlite.tasks.counts import TaskCounts
from rolecall.errors import HubError, StoreUnavailable

T = TypeVar("T")
log = logging.getLogger(__name__)

# Limit of the items that wait for a commit. A relay has one append under way, so this is also the limit of tasks that write.
QUEUE_LIMIT = 20_000
BATCH_LIMIT = 500
BATCH_BYTES = 4 * 1024 * 1024
"""A batch that holds more ends there: what is not committed is in memory, and everybody waits for it."""
SMALL = 64 * 1024
"""Bytes of an item that need not take turns."""
ON_LOOP_BYTES = 1024 * 1024
"""A batch that holds more runs on the thread, and the loop serves others."""
QUEUE_BYTES = 256 * 1024 * 1024
"""Content that may wait for a commit: a slow disk must not fill the memory."""
BUSY_MILLIS = 5_000
"""How long to wait for another process that locks the database."""
_WAIT_TURNS = 3
"""A batch waits this many turns of the loop for more items, but never for a time: more items cost little more."""
# Raised for a value that cannot be stored: the fault of one item, not of its batch.
_ITEM_FAULTS = (
    sqlite3.IntegrityError,
    sqlite3.DataError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
    ValueError,
    OverflowError,
)


class Item:
    """One piece of work for the writer. `short`: it touches few rows, found by key, so it may run on the loop. `size`: bytes
    of content that it writes. `task`: whose items stay in order; "": it concerns no task. `workspace`: with whose large items
    it takes turns.
    """

    __slots__ = ("error", "result", "size", "task", "workspace")
    short: bool
    size: int
    task: str
    workspace: str
    result: Any
    error: Exception | None

    def work(self, db: sqlite3.Connection) -> Any:
        """Must be repeatable: see Writer."""
        raise NotImplementedError

    def settle(self) -> None:
        """On the loop, once: `result` is durable, or `error` says that nothing was stored."""
        raise NotImplementedError


class _Submitted(Item, Generic[T]):
    """Work whose result somebody awaits."""

    __slots__ = ("_future", "_then", "_work", "short")

    def __init__(
        self,
        work: Callable[[sqlite3.Connection], T],
        then: Callable[[T], None] | None,
        future: asyncio.Future[T],
        *,
        short: bool,
        size: int,
        task: str,
        workspace: str,
    ) -> None:
        self.short = short
        self.size = size
        self.task = task
        self.workspace = workspace
        self._work = work
        self._then = then
        self._future = future

    def work(self, db: sqlite3.Connection) -> T:
        return self._work(db)

    def settle(self) -> None:
        """Complete the future. `then` runs even if the caller was cancelled: a commit must be published."""
        try:
            if self.error is None and self._then is not None:
                self._then(self.result)
        except BaseException as bug:
            self.error = StoreUnavailable()
            self.error.__cause__ = bug
            raise
        finally:
            if not self._future.done():
                if self.error is not None:
                    self._future.set_exception(self.error)
                else:
                    self._future.set_result(self.result)


class Writer:
    """Runs work, many items in one transaction, and completes it in the same order: that of submission, while one batch takes
    all that is queued. Of more, large items wait for small ones, and workspaces take turns with them; the items of a task
    always stay in order.

    An item that cannot be stored fails alone. If the transaction fails, all its items fail, and nothing of it is stored.

    `counts` is stored with each batch. On a full disk `make_room` is called, and the batch written again as long as it returns
    True.

    Work must be repeatable. After a fault the transaction is rolled back and the work runs again: the batch on the thread if
    it ran on the loop, then each item alone if one of them is at fault. So work must not change state outside the database
    that a second run would get wrong. Only its last result counts. `then` runs at most once, after the commit.

    The connection has one owner at each moment. The thread opens and closes it. Between batches the loop owns it, and runs
    batches of short items on it (`_run_on_loop`). `_orders.put` hands it to the thread, for the commit of such a batch, for
    any other batch as a whole, or for maintenance. `call_soon_threadsafe` hands it back to the loop (docs/decisions/0008).
    """

    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        *,
        make_room: Callable[[sqlite3.Connection], bool] = lambda db: False,
        counts: TaskCounts | None = None,
    ) -> None:
        self._connect = connect
        self._make_room = make_room
        self._counts = counts or TaskCounts()
        self._queue: deque[Item] = deque()
        self._orders: SimpleQueue[Callable[[sqlite3.Connection], None] | None] = SimpleQueue()
        self._batch: list[Item] = []
        self._maintenance: Callable[[sqlite3.Connection], object] | None = None
        self._waiting_bytes = 0
        """Of what is queued, and not in a batch yet."""
        self._served: dict[str, None] = {}
        """Workspaces whose large items were taken from a long queue, those of the last turns last."""
        self._open = False
        self._busy = False
        self._until_settled: list[asyncio.Future[None]] = []
        self._db: sqlite3.Connection
        self.commits = 0

    async def start(self) -> None:
        """Raises the errors of `connect`."""
        self._loop = asyncio.get_running_loop()
        self._ended = self._loop.create_future()
        started: asyncio.Future[None] = self._loop.create_future()
        # A daemon thread, so that a process that did not close the engine can still exit: acknowledged work is on disk.
        threading.Thread(target=self._run, args=(started,), name="sqlite writer", daemon=True).start()
        await started
        self._open = True

    def submit(
        self,
        work: Callable[[sqlite3.Connection], T],
        then: Callable[[T], None] | None = None,
        *,
        short: bool = False,
        size: int = 0,
        task: str = "",
        workspace: str = "",
    ) -> asyncio.Future[T]:
        """A future that is done when the work is durable. `then` runs on the loop just before. `short`, `size`, `task`,
        `workspace`: see Item. Work must be repeatable: see the class.
        """
        future: asyncio.Future[T] = self._loop.create_future()
        self.enqueue(_Submitted(work, then, future, short=short, size=size, task=task, workspace=workspace))
        return future

    def enqueue(self, item: Item) -> None:
        """The same without a future: the item is settled, in the order of its batch and never within this call.
        StoreUnavailable: it was not queued.
        """
        waiting = len(self._queue) + len(self._batch)
        if not self._open or waiting >= QUEUE_LIMIT or self._waiting_bytes > QUEUE_BYTES:
            raise StoreUnavailable
        item.result = item.error = None
        self._waiting_bytes += item.size
        self._queue.append(item)
        if not self._busy:
            self._busy = True
            self._loop.call_soon(self._gather, 0)

    def between(self, maintenance: Callable[[sqlite3.Connection], object]) -> None:
        """Run this once on the thread, between two batches. A later request replaces one that has not run yet."""
        self._maintenance = maintenance
        if self._open and not self._busy:
            self._busy = True
            self._next()

    async def settled(self) -> None:
        """Return when what other connections may have read by now is settled: a commit is on disk a moment before."""
        if self._batch:
            settled: asyncio.Future[None] = self._loop.create_future()
            self._until_settled.append(settled)
            await settled

    async def close(self) -> None:
        """Writes everything submitted, then ends the thread."""
        if self._open:
            self._open = False
            if not self._busy:
                self._orders.put(None)
            await asyncio.shield(self._ended)

    def _work(self, db: sqlite3.Connection, batch: list[Item]) -> None:
        self._counts.begin()
        db.execute("begin immediate")
        for item in batch:
            item.result = item.work(db)
        self._counts.store(db)

    # --- on the loop

    def _gather(self, turns: int) -> None:
        """Start a batch after a few turns of the loop."""
        if self._queue and turns < _WAIT_TURNS:
            self._loop.call_soon(self._gather, turns + 1)
        else:
            self._next()

    def _next(self) -> None:
        """Start maintenance, or a batch of what is queued, up to a limit. The loop owns the connection until `_orders.put`."""
        if self._maintenance is not None:
            maintenance, self._maintenance = self._maintenance, None
            self._orders.put(lambda db: self._run_maintenance(db, maintenance))
            return
        waiting = self._waiting_bytes
        batch = self._batch = self._take_batch()
        if not batch:
            self._busy = False
            if not self._open:
                self._orders.put(None)
            return
        order = self._write
        try:
            large = waiting > ON_LOOP_BYTES and sum([item.size for item in batch]) > ON_LOOP_BYTES
            if not large and all([item.short for item in batch]) and self._run_on_loop(batch):
                order = self._commit
        except BaseException:
            self._orders.put(None)  # a bug: ends the thread, see _settle_end
            raise
        self._orders.put(partial(order, batch=batch))

    def _take_batch(self) -> list[Item]:
        queue = self._queue
        if self._waiting_bytes <= BATCH_BYTES and len(queue) <= BATCH_LIMIT:
            batch = list(queue)
            queue.clear()
            self._waiting_bytes = 0
            self._served.clear()
            return batch
        batch = self._take_small()
        self._waiting_bytes -= sum(item.size for item in batch)
        return batch + self._take_large(BATCH_LIMIT - len(batch))

    def _take_small(self) -> list[Item]:
        """What is small, but not before a large item of its task."""
        taken, left, behind = list[Item](), deque[Item](), set[str]()
        for item in self._queue:
            if item.size < SMALL and item.task not in behind and len(taken) < BATCH_LIMIT:
                taken.append(item)
            else:
                left.append(item)
                if item.task:
                    behind.add(item.task)
        self._queue = left
        return taken

    def _take_large(self, limit: int) -> list[Item]:
        """Workspaces in turn, each the first that it has; those first that were served longest ago."""
        by_workspace: dict[str, deque[Item]] = {}
        of_task: dict[str, str] = {}
        for item in self._queue:
            # Not every item of a task says its workspace.
            workspace = of_task.setdefault(item.task, item.workspace) if item.task else item.workspace
            by_workspace.setdefault(workspace, deque()).append(item)
        never = [workspace for workspace in by_workspace if workspace not in self._served]
        turns = deque([*never, *(workspace for workspace in self._served if workspace in by_workspace)])
        taken, size = list[Item](), 0
        while turns and len(taken) < limit and size <= BATCH_BYTES:
            workspace = turns.popleft()
            items = by_workspace[workspace]
            item = items.popleft()
            taken.append(item)
            size += item.size
            self._served.pop(workspace, None)
            self._served[workspace] = None
            if items:
                turns.append(workspace)
        gone = set(map(id, taken))
        self._queue = deque(item for item in self._queue if id(item) not in gone)
        self._waiting_bytes -= size
        return taken

    def _run_on_loop(self, batch: list[Item]) -> bool:
        """False: it failed, for example on another process's lock. It is rolled back; the thread must wait and run it again."""
        db = self._db
        try:
            self._work(db, batch)
        except (sqlite3.Error, ValueError, OverflowError):
            if db.in_transaction:
                db.rollback()
            return False
        return True

    def _settle(self, batch: Iterator[Item]) -> None:
        """A bug in one item's `then` fails that item only: the loop logs it, and the other items are completed."""
        finished = False
        try:
            for item in batch:
                item.settle()
            finished = True
        finally:
            if finished:
                self._batch = []
                self._wake_settled()
                self._gather(0)
            else:
                self._loop.call_soon(self._settle, batch)

    def _wake_settled(self) -> None:
        waiting, self._until_settled = self._until_settled, []
        for settled in waiting:
            if not settled.done():
                settled.set_result(None)

    def _settle_start(self, started: asyncio.Future[None], error: Exception | None) -> None:
        if started.done():
            return
        if error is None:
            started.set_result(None)
        else:
            started.set_exception(error)

    def _settle_end(self) -> None:
        """If the thread broke, fail everything that still waits."""
        self._open = False
        unfinished = [*self._batch, *self._queue]
        self._batch = []
        self._queue.clear()
        for item in unfinished:
            item.error = StoreUnavailable()
            item.settle()
        self._wake_settled()
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

    def _commit(self, db: sqlite3.Connection, batch: list[Item]) -> None:
        try:
            db.execute("commit")
            self.commits += 1
        except sqlite3.Error as error:
            self._fail(db, batch, error)
        self._loop.call_soon_threadsafe(self._settle, iter(batch))

    def _run_maintenance(self, db: sqlite3.Connection, maintenance: Callable[[sqlite3.Connection], object]) -> None:
        try:
            maintenance(db)
        except sqlite3.Error as error:
            log.warning("maintenance of the writer failed", extra={"event": "chore_failed", "why": type(error).__name__})
        self._loop.call_soon_threadsafe(self._next)

    def _write(self, db: sqlite3.Connection, batch: list[Item]) -> None:
        db.execute(f"pragma busy_timeout = {BUSY_MILLIS}")
        self._write_together(db, batch)
        db.execute("pragma busy_timeout = 0")
        self._loop.call_soon_threadsafe(self._settle, iter(batch))

    def _write_together(self, db: sqlite3.Connection, batch: list[Item]) -> None:
        try:
            self._work(db, batch)
            db.execute("commit")
            self.commits += 1
        except (sqlite3.Error, ValueError, OverflowError) as error:
            self._fail(db, batch, error)

    def _fail(self, db: sqlite3.Connection, batch: list[Item], error: Exception) -> None:
        if db.in_transaction:
            db.rollback()
        if isinstance(error, _ITEM_FAULTS) and len(batch) > 1:
            for item in batch:
                self._write_together(db, [item])
            return
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL and self._make_room(db):
            self._write_together(db, batch)
            return
        for item in batch:
            item.error = StoreUnavailable()
            item.error.__cause__ = error
