"""Pages of a task's log as it is stored: for tools that show what happened, and not what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from itertools import accumulate
from typing import NamedTuple

from hub.core.relay.context import Dependencies
from hub.core.tasks.lookup import TaskLookup
from rolecall.errors import InvalidParams
from rolecall.model.a2a import Logged
from rolecall.model.command import Target
from rolecall.model.ids import Caller, Cursor, TaskId

_PAGE_BYTES = 1024 * 1024
"""Bytes of events in one page. An event above that is a page of its own."""


class LogPage(NamedTuple):
    """`next_after`: where the next page begins; None: the log has no more now."""

    events: Sequence[Logged]
    next_after: Cursor | None


class LogPages:
    def __init__(self, deps: Dependencies, lookup: TaskLookup) -> None:
        self._log = deps.engine.events
        self._lookup = lookup
        self._unsent = deps.shares.unsent

    async def read(self, caller: Caller, task: TaskId, *, after: Cursor, limit: int) -> LogPage:
        """The caller's task, under the hub's id or the caller's alias. TaskNotFound; InvalidParams: it has no event `after`;
        AnswerNotSent.
        """
        row = await self._lookup.find(caller, task, Target())
        if after > row.at:
            raise InvalidParams(f'"after" is {after}, and the last event of the task is {row.at}.')
        with self._unsent.hold(caller.workspace, min(row.size, _PAGE_BYTES)):
            events = await self._read(row.id, after, limit)
        last = events[-1].cursor if events else after
        return LogPage(events, last if last < row.at else None)

    async def _read(self, task: TaskId, after: Cursor, limit: int) -> Sequence[Logged]:
        """TaskNotFound: it has been deleted meanwhile."""
        events, size = list[Logged](), 0
        subscription = self._log.follow(task, after=after, idle=timedelta())
        try:
            while len(events) < limit and size < _PAGE_BYTES and (piece := await subscription.page()):
                events += piece
                size += sum([len(logged.event.body) for logged in piece])
        finally:
            subscription.stop()
        sizes = accumulate(len(logged.event.body) for logged in events[:limit])
        count = sum(size <= _PAGE_BYTES for size in sizes)
        return events[: max(count, 1)]
