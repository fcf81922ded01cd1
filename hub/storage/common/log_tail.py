"""The end of a task's log in memory, shared by all its readers, and those readers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from hub.ports.state.event_log import Deliver
from hub.storage.common.waiting import IdleWait, wake_all
from rolecall.model.a2a import Logged
from rolecall.model.ids import Cursor, TaskId

# Limits of one page. A reader whose client has stopped reading keeps one page in memory, so it is small.
PAGE_EVENTS = 256
PAGE_BYTES = 16 * 1024
# Limits of one task's tail, which serves readers that are nearly up to date.
TAIL_EVENTS = 256
TAIL_BYTES = 256 * 1024
AT_ONCE = 8
"""Live readers that are served in one turn of the loop, so that a task with many readers does not hold it."""
LIVE_EVENTS = 32
"""Events that a live reader is called with at once; for more it reads pages, which lets others take turns."""


class LogTail:
    """The newest committed events, without a gap, up to `end`."""

    __slots__ = ("__weakref__", "_events", "_in_turns", "_whole", "closed", "end", "readers", "size")

    def __init__(self, end: Cursor, *, closed: bool = False, whole: bool = False) -> None:
        self.end = end
        self.closed = closed
        self.readers: list[LogFollower] = []
        """Those that are live."""
        self.size = 0
        self._events: list[Logged] = []
        self._whole = whole
        self._in_turns = False
        """Some readers wait for a later turn of the loop."""

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
        if self.readers and not self._in_turns:
            self._serve(tuple(self.readers))

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

    def latest(self, after: Cursor) -> Sequence[Logged] | None:
        """Everything after `after`, which is before the end. None: that is too much for a live reader, or it is not here."""
        count = self.end - after
        if count > LIVE_EVENTS or count > len(self._events):
            return None
        events = self._events[-count:]
        if count > 1 and sum([len(logged.event.body) for logged in events]) > PAGE_BYTES:
            return None
        return events

    def _serve(self, due: Sequence[LogFollower]) -> None:
        """Serve some readers now, and the rest in later turns of the loop. Whoever is behind by then is served again."""
        for reader in due[:AT_ONCE]:
            reader.catch_up(self)
        due = due[AT_ONCE:]
        if self._in_turns and not due:
            due = [reader for reader in self.readers if reader.after < self.end]
        self._in_turns = bool(due)
        if due:
            asyncio.get_running_loop().call_soon(self._serve, due)

    def _trim(self) -> None:
        """The newest event stays, however large it is: its readers would all read it from the store."""
        surplus = max(len(self._events) - TAIL_EVENTS, 0)
        for logged in self._events[:surplus]:
            self.size -= len(logged.event.body)
        while self.size > TAIL_BYTES and surplus < len(self._events) - 1:
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
    """Reads one task's log: live from the tail; behind, from the tail if it reaches back far enough, else from the store."""

    __slots__ = ("_deliver", "_over", "_stored", "_tail", "_task", "after")

    def __init__(self, stored: Stored, task: TaskId, tail: LogTail | None, *, after: Cursor, idle: timedelta) -> None:
        super().__init__(idle)
        self.after = after
        self._stored = stored
        self._task = task
        self._tail = tail
        self._over = False
        """Its task was deleted."""
        self._deliver: Deliver | None = None
        """Set while it is live."""

    async def page(self) -> Sequence[Logged]:
        if self._tail is None and not self._stopped:
            self._tail = await self._stored.tail(self._task)
        tail = self._tail
        if tail is None or self._stopped or self._over or self.after >= tail.end:
            return ()
        page = tail.page(self.after) if tail.covers(self.after) else await self._stored.page(self._task, self.after)
        if page:
            self.after = page[-1].cursor
        else:
            self._over = True
        return page

    async def live(self, deliver: Deliver) -> bool:
        tail = self._tail
        if tail is not None and self.after >= tail.end and not self._has_ended(tail):
            self._deliver = deliver
            tail.readers.append(self)
            try:
                await self._start_wait()
            finally:
                self._leave()
        if not self._has_ended(tail):
            return True
        self._cancel_timer()
        return False

    def catch_up(self, tail: LogTail) -> None:
        """The tail has new events."""
        if self._deliver is None or self.after >= tail.end:
            return
        events = tail.latest(self.after)
        if events is None:
            self.wake()
        elif self._call(self._deliver, events):
            self.after = events[-1].cursor
            if tail.closed and not self._stopped:
                self.wake()

    def wake(self) -> None:
        self._leave()
        super().wake()

    def _on_idle(self) -> None:
        if self._deliver is not None:
            self._call(self._deliver, ())

    def _call(self, deliver: Deliver, events: Sequence[Logged]) -> bool:
        try:
            taken = deliver(events)
        except Exception as error:  # noqa: BLE001  it is raised in the reader's task: the log's writer must not meet it
            self._leave()
            if self._waiter is not None and not self._waiter.done():
                self._waiter.set_exception(error)
            return False
        if taken:
            self._deadline = self._loop.time() + self._idle
        else:
            self.wake()
        return taken

    def _leave(self) -> None:
        """It is no longer live."""
        if self._deliver is not None and self._tail is not None:
            self._deliver = None
            self._tail.readers.remove(self)

    def _has_ended(self, tail: LogTail | None) -> bool:
        return self._stopped or self._over or (tail is not None and tail.closed and self.after >= tail.end)
