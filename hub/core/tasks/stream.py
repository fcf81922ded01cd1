"""A reader's stream of a task: a snapshot first if needed, then the log, until the task rests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from hub.core.observe import Observer
from hub.ports.event_log import Deliver, Subscription
from rolecall.model.a2a import Logged
from rolecall.model.ids import Cursor


class TaskStream:
    """The events for one client, read as those of a subscription. Close it when the client has disconnected.

    `broken_off`: it ended before the task rests, because the hub shuts down; the reader must resume it.

    `first`: the Task as of a cursor, if the reader does not start with the first event of the log.
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
        """It counts against the open streams of this workspace."""
        self.dialect = dialect
        """The reader's dialect; the log may have another."""
        self.alias = alias
        self._on_close = on_close
        self.closed = False
        self._over = False
        self.broken_off = False
        observer.stream_opened(role)

    async def page(self) -> Sequence[Logged]:
        if self._first is not None:
            first, self._first = self._first, None
            self._over = await self._is_last(first)
            return (first,)
        if self._over:
            return ()
        page = await self._events.page()
        if page:
            self._over = await self._is_last(page[-1])
        return page

    async def live(self, deliver: Deliver) -> bool:
        if self._over:
            return False

        def until_rest(events: Sequence[Logged]) -> bool:
            taken = deliver(events)
            if taken and events and (events[-1].event.is_last or events[-1].event.pauses):
                self._over = True  # nothing is behind it: these events reach to the end of the log
                self._events.stop()
            return taken

        return await self._events.live(until_rest)

    def break_off(self) -> None:
        if not self._over:
            self.broken_off = True
            self.close()

    def close(self) -> None:
        """Ends the stream for a waiting reader too. Closing again does nothing."""
        self._events.stop()
        self._over = True
        if not self.closed:
            self.closed = True
            self._observer.stream_closed(self._role)
            self._on_close(self)

    async def _is_last(self, last: Logged) -> bool:
        """Whether the stream ends after this event: the task has ended, or is paused with nothing behind in the log."""
        return last.event.is_last or (last.event.pauses and await self._rests_at(last.cursor))
