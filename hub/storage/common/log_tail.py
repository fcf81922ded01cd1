"""The end of a task's log in memory, shared by all its readers, and those readers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from hub.storage.common.waiting import IdleWait, wake_all
from rolecall.model.a2a import Logged
from rolecall.model.ids import Cursor, TaskId

# Limits of one page. A reader whose client has stopped reading keeps one page in memory, so it is small.
PAGE_EVENTS = 256
PAGE_BYTES = 16 * 1024
# Limits of one task's tail, which serves readers that are nearly up to date.
TAIL_EVENTS = 256
TAIL_BYTES = 256 * 1024


class LogTail:
    """The newest committed events, without a gap, up to `end`."""

    __slots__ = ("__weakref__", "_events", "_whole", "closed", "end", "readers", "size")

    def __init__(self, end: Cursor, *, closed: bool = False, whole: bool = False) -> None:
        self.end = end
        self.closed = closed
        self.readers: set[IdleWait] = set()
        self.size = 0
        self._events: list[Logged] = []
        self._whole = whole

    def extend(self, events: Sequence[Logged]) -> None:
        """Add committed events. Events that are already known are ignored."""
        size, end = 0, self.end
        for logged in events:
            if logged.cursor > end:
                self._events.append(logged)
                size += len(logged.event.body)
                end = logged.cursor
        self.size += size
        self.end = end
        if not self._whole and (len(self._events) > TAIL_EVENTS or self.size > TAIL_BYTES):
            self._trim()
        if self.readers:
            wake_all(self.readers)

    def close(self) -> None:
        """There will be no more events."""
        self.closed = True
        wake_all(self.readers)

    def drop_contents(self) -> None:
        self._events = []
        self.size = 0

    def covers(self, after: Cursor) -> bool:
        return after >= self.end - len(self._events)

    def since(self, after: Cursor, upto: Cursor | None = None) -> Sequence[Logged]:
        first = self.end - len(self._events)
        return self._events[max(after - first, 0) : None if upto is None else max(upto - first, 0)]

    def page(self, after: Cursor) -> Sequence[Logged]:
        events = self._events
        start = after - (self.end - len(events))
        size = 0
        for stop in range(start, min(len(events), start + PAGE_EVENTS)):
            if size >= PAGE_BYTES:
                return events[start:stop]
            size += len(events[stop].event.body)
        return events[start : start + PAGE_EVENTS]

    def _trim(self) -> None:
        surplus = max(len(self._events) - TAIL_EVENTS, 0)
        for logged in self._events[:surplus]:
            self.size -= len(logged.event.body)
        while self.size > TAIL_BYTES:
            self.size -= len(self._events[surplus].event.body)
            surplus += 1
        if surplus:
            del self._events[:surplus]


class Stored(Protocol):
    """The store that a reader uses for events that the tail does not hold."""

    async def tail(self, task: TaskId) -> LogTail:
        """TaskNotFound. The tail stays up to date while it is referenced."""

    async def page(self, task: TaskId, after: Cursor) -> Sequence[Logged]: ...


class LogFollower(IdleWait):
    """Reads one task's log: from the tail if it reaches back far enough, else page by page from the store."""

    __slots__ = ("_after", "_over", "_stored", "_tail", "_task")

    def __init__(self, stored: Stored, task: TaskId, tail: LogTail | None, *, after: Cursor, idle: timedelta) -> None:
        super().__init__(idle)
        self._stored = stored
        self._task = task
        self._tail = tail
        self._after = after
        self._over = False

    def __aiter__(self) -> LogFollower:
        return self

    async def __anext__(self) -> Sequence[Logged]:
        if self._tail is None and not self._stopped:
            self._tail = await self._stored.tail(self._task)
        tail = self._tail
        while tail is not None and not self._stopped and not self._over:
            if self._after < tail.end:
                return await self._next_page(tail)
            if tail.closed:
                break
            if not await self._wait_for_wake(tail.readers):
                return ()
        self._cancel_timer()
        raise StopAsyncIteration

    async def _next_page(self, tail: LogTail) -> Sequence[Logged]:
        page = tail.page(self._after) if tail.covers(self._after) else await self._stored.page(self._task, self._after)
        if page:
            self._after = page[-1].cursor
            self._over = page[-1].event.is_last
        else:
            self._over = True  # the log was deleted while it was read
        return page
