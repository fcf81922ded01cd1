"""A reader's view of a task: perhaps a snapshot first, then the log, until the task rests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from hub.core.observe import Observer
from hub.ports.event_log import Subscription
from rolecall.model.a2a import Logged
from rolecall.model.ids import Cursor


class TaskStream:
    """Batches of events for one client. An empty batch means: still waiting. Close it when the client has gone.

    `broken_off` says that it ended before the task came to rest, because the hub goes down: the reader has to come back.

    `first` is the Task as of a cursor, where the log's own first event is not what the reader gets first.
    """

    def __init__(
        self,
        events: Subscription,
        *,
        first: Logged | None,
        rests_at: Callable[[Cursor], Awaitable[bool]],
        observer: Observer,
        workspace: str,
        role: str,
        dialect: str,
        alias: str,
        on_close: Callable[[TaskStream], None],
    ) -> None:
        self._events = events
        self._first = first
        self._rests_at = rests_at
        self._observer = observer
        self._role = role
        self.workspace = workspace
        """Whose open stream this is."""
        self.dialect = dialect
        """The reader's: the log may be kept in another."""
        self.alias = alias
        self._on_close = on_close
        self.closed = False
        self._over = False
        self.broken_off = False
        observer.stream_opened(role)

    def __aiter__(self) -> TaskStream:
        return self

    async def __anext__(self) -> Sequence[Logged]:
        if self._first is not None:
            first, self._first = self._first, None
            self._over = await self._ends(first)
            return (first,)
        if self._over:
            raise StopAsyncIteration
        batch = await self._events.__anext__()
        if batch:
            self._over = await self._ends(batch[-1])
        return batch

    def break_off(self) -> None:
        if not self._over:
            self.broken_off = True
            self.close()

    def close(self) -> None:
        """Wakes a reader that waits; it finds the end. Closing again does nothing."""
        self._events.stop()
        self._over = True
        if not self.closed:
            self.closed = True
            self._observer.stream_closed(self._role)
            self._on_close(self)

    async def _ends(self, last: Logged) -> bool:
        """After a pause nothing comes without a further message, so the stream ends there, if the log does."""
        return last.event.ends or (last.event.pauses and await self._rests_at(last.cursor))
