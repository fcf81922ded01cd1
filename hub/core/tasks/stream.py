"""A reader's stream of a task: a snapshot first if needed, then the log, until the task rests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

from hub.core.observe import Observer
from hub.ports.state.event_log import Deliver, EventLog
from rolecall.model.a2a import CONTENT, Logged
from rolecall.model.ids import Cursor, TaskId


class TaskStream:
    """The events for one client, read as those of a subscription. Close it when the client has disconnected.

    `broken_off`: it ended before the task rests, because the hub shuts down; the reader must resume it.

    `first`: the Task as of a cursor, if the reader does not start with the first event of the log.
    """

    __slots__ = (
        "__weakref__",
        "_deliver",
        "_events",
        "_first",
        "_log",
        "_observer",
        "_on_close",
        "_over",
        "_role",
        "alias",
        "broken_off",
        "closed",
        "dialect",
        "task",
        "workspace",
    )

    def __init__(
        self,
        log: EventLog,
        task: TaskId,
        *,
        after: Cursor,
        idle: timedelta,
        first: Logged | None,
        observer: Observer,
        workspace: str,
        role: str,
        dialect: str,
        alias: str,
        on_close: Callable[[TaskStream], None],
    ) -> None:
        self._log = log
        self.task = task
        self._events = log.follow(task, after=after, idle=idle)
        self._deliver: Deliver
        self._first = first
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
            page: Sequence[Logged] = (self._first,)
            self._first = None
        elif self._over:
            return ()
        else:
            page = await self._events.page()
        if page and await self._is_last(page[-1]):
            self._end()
        return page

    def live(self, deliver: Deliver) -> Awaitable[bool]:
        self._deliver = deliver
        return self._events.live(self._until_rest)

    def break_off(self) -> None:
        if not self._over:
            self.broken_off = True
            self.close()

    def close(self) -> None:
        """Ends the stream for a waiting reader too. Closing again does nothing."""
        self._end()
        if not self.closed:
            self.closed = True
            self._observer.stream_closed(self._role)
            self._on_close(self)

    def _until_rest(self, events: Sequence[Logged]) -> bool:
        taken = self._deliver(events)
        if taken and events:
            last = events[-1].event
            # These events reach to the end of the log: nothing is behind a pause.
            if last.kind is not CONTENT and (last.is_last or last.pauses):
                self._end()
        return taken

    async def _is_last(self, last: Logged) -> bool:
        """Whether the stream ends after this event: the task has ended, or is paused with nothing behind in the log."""
        return last.event.is_last or (last.event.pauses and not await self._log.read(self.task, after=last.cursor))

    def _end(self) -> None:
        self._over = True
        self._events.stop()
