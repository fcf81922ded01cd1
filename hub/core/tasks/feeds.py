"""Feeds of a caller's tasks: what changes, for those who watch them, and what a change says."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import NamedTuple

from hub.core.open_feeds import OpenFeeds
from hub.core.relay.context import Dependencies
from hub.core.tasks.reader import TaskReader
from hub.ports.shares import Slots
from hub.ports.state import task_changes
from rolecall.errors import StoreUnavailable
from rolecall.model.a2a import PAUSED, TaskState
from rolecall.model.ids import Caller
from rolecall.model.task import TaskChange, TaskChangeKind

_REST = 0.1
"""Seconds between two batches: many changes are sent together, however many readers there are."""


class ChangeQuery(NamedTuple):
    """`after`: a revision; None: from now on. None of `role`, or no states: all."""

    after: int | None = None
    role: str | None = None
    states: tuple[TaskState, ...] = ()

    def fits(self, change: TaskChange) -> bool:
        return self.role in (None, change.role) and (not self.states or change.state in self.states)


class Words(NamedTuple):
    """What a change says. `question`: of a paused task. `reason`: the code, if the hub itself has ended the task. `detail`: the
    words of a task that has failed, or was rejected or canceled.
    """

    question: str | None = None
    reason: str | None = None
    detail: str | None = None


class TaskFeed:
    """The changes that fit a query, batch by batch. An empty batch: there are none now. Ends after `stop`."""

    def __init__(
        self, source: task_changes.TaskFeed, slots: Slots, caller: Caller, query: ChangeQuery, idle: timedelta
    ) -> None:
        self._source = source
        self._page_slots = slots
        self._caller = caller
        self._query = query
        self._idle = idle.total_seconds()
        self._stopped = False
        self._rests = False
        self._sent_at = asyncio.get_running_loop().time()

    @property
    def revision(self) -> int | None:
        """Of the newest change that the reader has, or that does not fit. None: it is not known yet."""
        return self._source.revision

    def stop(self) -> None:
        self._stopped = True
        self._source.stop()

    def __aiter__(self) -> TaskFeed:
        return self

    async def __anext__(self) -> Sequence[TaskChange]:
        loop = asyncio.get_running_loop()
        while not self._stopped:
            began = self._source.revision is None
            changes = await self._next()
            batch = [change for change in changes if self._query.fits(change)]
            self._rests = bool(changes) and not self._source.is_behind
            if batch or began or loop.time() - self._sent_at >= self._idle:
                self._sent_at = loop.time()
                return batch
        raise StopAsyncIteration

    async def _next(self) -> Sequence[TaskChange]:
        if self._rests:
            await asyncio.sleep(_REST)
        if not self._source.is_behind:
            return await self._source.live()
        try:
            async with self._page_slots.slot(self._caller.workspace):
                return () if self._stopped else await self._source.stored()
        except StoreUnavailable:
            self.stop()  # its reader comes back
            return ()


class TaskFeeds:
    def __init__(self, deps: Dependencies, reader: TaskReader) -> None:
        self._changes = deps.engine.task_changes
        self._page_slots = deps.shares.feed_pages
        self._reader = reader
        self._feeds = OpenFeeds()

    @contextmanager
    def open(self, caller: Caller, query: ChangeQuery, *, idle: timedelta) -> Iterator[TaskFeed]:
        """The changes of the caller's tasks."""
        source = self._changes.follow(caller, after=query.after, idle=idle)
        with self._feeds.keep(TaskFeed(source, self._page_slots, caller, query, idle)) as feed:
            yield feed

    async def words(self, change: TaskChange) -> Words:
        """They are empty if the task has been deleted meanwhile. StoreUnavailable; Overloaded: it is large."""
        paused = change.state in PAUSED
        if not paused and (change.kind is not TaskChangeKind.ENDED or change.state is TaskState.COMPLETED):
            return Words()
        words = await self._reader.words(change)
        return Words(question=words) if paused else Words(detail=words, reason=await self._reader.reason(change) or None)

    def end(self) -> None:
        """The hub shuts down."""
        self._feeds.end()
