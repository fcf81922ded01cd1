"""The only writer of one task's log: turns what the worker sends into events, and keeps the position of the log's end."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from hub.core.observe import Observer
from hub.ports.codec import Codec, LogFold
from hub.ports.event_log import EventLog, LogEntry
from rolecall.errors import HubError
from rolecall.model.a2a import CONTENT, PAUSED, Event, EventKind, Ids, TaskState, WorkerEvent
from rolecall.model.ids import START, Cursor, new_context_id
from rolecall.model.task import TaskRow, Turn
from rolecall.model.value import replace

_PAGE = 500
_FOLDED_ON_LOOP = 200
"""Events, or KiB of log, that are folded on the loop."""


class TaskLogWriter:
    def __init__(self, log: EventLog, codec: Codec, observer: Observer, row: TaskRow, turns: Sequence[Turn]) -> None:
        self._log = log
        self._codec = codec
        self._observer = observer
        self._role = row.role
        self._turns = turns
        self._lock = FifoLock()
        self._fold: LogFold | None = None
        self.ids = row.ids
        self.at = row.at
        self.size = row.size
        self.state = row.state
        self.position = row.position
        self.ended = row.ended
        self.writing = False
        """True while an append runs. Do not cancel it: without its outcome the end of the log is unknown."""

    @property
    def rests(self) -> bool:
        """Nothing more is expected without a further message."""
        return self.ended or self.state in PAUSED

    async def write(self, batch: Sequence[WorkerEvent], *, gap: bool = False) -> None:
        """Log what a worker sent. Events after the end, or of another task, are dropped and counted."""
        if not self._lock.enter():
            await self._lock.turn()
        try:
            await self._write(batch, gap=gap)
        finally:
            self._lock.leave()

    async def _write(self, batch: Sequence[WorkerEvent], *, gap: bool) -> None:
        ids, events, position = self.ids, list[Event](), self.position
        ended = self.ended
        for worker_event in batch:
            if ended:
                self._observer.dropped(self._role, "after the end", 1)
                continue
            if worker_event.task and ids.worker_task and worker_event.task != ids.worker_task:
                self._observer.dropped(self._role, "foreign task", 1)
                continue
            ids = _with_worker_ids(ids, worker_event)
            if worker_event.kind is not EventKind.TASK and (events or self.at != START):
                events.append(self._codec.adopt(worker_event, ids))
            else:
                events += await self._opening_or_missing(worker_event, ids, events, position, gap=gap)
            ended = worker_event.kind is not CONTENT and bool(events) and events[-1].is_last
            position = worker_event.position or position
        if events and self.state in PAUSED and events[0].state is None:
            # The pause was answered: readers must not take the task for one that still waits.
            events.insert(0, self._codec.resumed(ids))
        if events or position != self.position:
            await self._append(events, ids, position)

    def use_dialect(self, log_dialect: str) -> None:
        """Another worker gets the call, before any event was logged."""
        assert self.at == START
        self.ids = replace(self.ids, log_dialect=log_dialect)

    async def idle(self) -> None:
        """Wait until no append runs or waits."""
        if not self._lock.enter():
            await self._lock.turn()
        self._lock.leave()

    async def reveal(self) -> None:
        """Log the opening of the task before its worker has sent anything."""
        if not self._lock.enter():
            await self._lock.turn()
        try:
            if self.at == START:
                ids = self._with_context()
                await self._append([self._codec.opening(ids, self._turns[0])], ids, self.position)
        finally:
            self._lock.leave()

    async def conclude(self, error: HubError, state: TaskState = TaskState.FAILED) -> None:
        """End the task by the hub, with its error."""
        if not self._lock.enter():
            await self._lock.turn()
        try:
            if not self.ended:
                ids = self._with_context()
                events = [self._codec.opening(ids, self._turns[0])] if self.at == START else []
                await self._append([*events, self._codec.verdict(ids, state, error)], ids, self.position)
        finally:
            self._lock.leave()

    async def _opening_or_missing(
        self, worker_event: WorkerEvent, ids: Ids, pending: list[Event], position: str | None, *, gap: bool
    ) -> Sequence[Event]:
        """`pending`: the events of this batch so far. `position`: the worker's position after them."""
        if self.at == START and not pending:
            return self._codec.begin(worker_event, ids, self._turns[0])
        if pending:
            # The comparison is with the log, so the earlier events of this batch must be there.
            await self._append(pending, ids, position)
            pending.clear()
        fold = await self._folded()
        return fold.missing(worker_event, ids, gap=gap)

    async def _folded(self) -> LogFold:
        """The fold of the whole log. It is kept, so that each comparison reads only what was logged since the last one."""
        fold, self._fold = self._fold or self._codec.fold(self._turns), None
        while fold.at < self.at:
            page = await self._log.read(self.ids.task, after=fold.at, upto=Cursor(min(self.at, fold.at + _PAGE)))
            if len(page) <= _FOLDED_ON_LOOP and sum(len(logged.event.body) for logged in page) <= _FOLDED_ON_LOOP * 1024:
                fold.add(page)
            else:
                await asyncio.to_thread(fold.add, page)
        self._fold = fold  # not before: a thread may still add to the fold of a relay that was cancelled
        return fold

    async def _append(self, events: Sequence[Event], ids: Ids, position: str | None) -> None:
        self.writing = True
        try:
            known = None if ids == self.ids and self.at != START else ids
            self.at = await self._log.append(ids.task, LogEntry(events, position, known), after=self.at)
        finally:
            self.writing = False
        self.ids, self.position = ids, position
        size = 0
        for event in events:
            size += len(event.body)
            if event.kind is not CONTENT:
                self.state = event.state or self.state
                self.ended = self.ended or event.is_last
        if events:
            self.size += size
            self._observer.events_logged(self._role, len(events), size)

    def _with_context(self) -> Ids:
        return self.ids if self.ids.context else replace(self.ids, context=new_context_id())


def _with_worker_ids(ids: Ids, worker_event: WorkerEvent) -> Ids:
    """The ids, with those of the worker. Its context becomes the public one if the caller gave none."""
    if ids.worker_task and ids.worker_context and ids.context:
        return ids
    return Ids(
        ids.task,
        ids.context or worker_event.context or new_context_id(),
        ids.worker_task or worker_event.task,
        ids.worker_context or worker_event.context,
        ids.log_dialect,
    )


class FifoLock:
    """A lock for one task at a time, in order of arrival. Costs almost nothing without contention.

    Use: `if not lock.enter(): await lock.turn()`, then `lock.leave()` in a `finally`.
    """

    __slots__ = ("_taken", "_waiting")

    def __init__(self) -> None:
        self._taken = False
        self._waiting: deque[asyncio.Future[None]] | None = None

    def enter(self) -> bool:
        """False: the lock is taken."""
        if self._taken:
            return False
        self._taken = True
        return True

    async def turn(self) -> None:
        """Wait for the lock. A waiter that is cancelled just as it gets the lock passes it on."""
        if self._waiting is None:
            self._waiting = deque()
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.leave()
            raise

    def leave(self) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self._taken = False
