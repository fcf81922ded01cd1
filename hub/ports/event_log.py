"""The event log port: the truth about every task, and the only way to read one live."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from rolecall.model.a2a import Event, Ids, Logged
from rolecall.model.ids import START, Cursor, TaskId
from rolecall.model.value import Value


class Subscription(Protocol):
    """A reader of one task's log: batches of stored, then live events, in order, no gap, no repeat.

    A batch holds what was there already (at most a page), so that it can go out in one write. An empty batch means that
    nothing came for `idle`. Ends after an event that `ends`, and after `stop`. One reader per subscription.
    """

    def __aiter__(self) -> Subscription: ...
    async def __anext__(self) -> Sequence[Logged]: ...
    def stop(self) -> None: ...


class LogEntry(Value, frozen=True):
    """What one append adds. `ids` where the worker's ids or the context have just become known."""

    events: Sequence[Event]
    position: str | None = None
    ids: Ids | None = None


class EventLog(Protocol):
    """The truth about every task, and the only way to read one live."""

    async def append(self, task: TaskId, entry: LogEntry, *, after: Cursor) -> Cursor:
        """Add events behind `after`; with them, in one transaction, go the worker's position, the ids, and the state that
        the events leave the task in. Durable when it returns, and only then visible to anybody. LogMoved if the log does
        not end at `after`, or has ended; StoreUnavailable. Returns the new end.
        """

    async def read(self, task: TaskId, *, after: Cursor = START, upto: Cursor | None = None) -> Sequence[Logged]:
        """Stored events behind `after`, up to and with `upto`."""

    def follow(self, task: TaskId, *, after: Cursor, idle: timedelta) -> Subscription:
        """Wake-ups are hints: losing one may cost time, never an event. A slow reader lags in storage, not in memory."""
