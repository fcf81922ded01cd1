"""Tasks as callers see them: a task now, or as of an event, from its log."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from hub.core.relay.context import Dependencies
from rolecall.errors import InvalidAnswer, TaskNotFound
from rolecall.model.a2a import Answer, Event, EventKind, Logged
from rolecall.model.command import ITS_OWN
from rolecall.model.ids import Cursor, TaskId
from rolecall.model.task import TaskRow
from rolecall.model.value import Value

_READ_AT_ONCE = 8 * 1024 * 1024
"""Bytes of the logs behind one page of a list."""
_FOLDED_HERE = 200
"""Events, or KiB of them."""
_SHARED = ("0.1", "0.3")
"""They call some methods alike."""


class TaskView(Value, frozen=True):
    """How a caller wants to see a task. `alias`: what he calls it."""

    dialect: str
    history_length: int | None = None
    alias: str = ""
    artifacts: bool = True


class TaskReader:
    def __init__(self, deps: Dependencies) -> None:
        self._engine = deps.engine
        self._codec = deps.codec

    async def now(self, task: TaskId, view: TaskView) -> Answer:
        return await self.of(task, await self._engine.events.read(task), view)

    async def of(self, task: TaskId, log: Sequence[Logged], view: TaskView) -> Answer:
        """The task as of the end of `log`, or the bare message that is all there is. TaskNotFound: nobody was shown it yet."""
        if not log:
            raise TaskNotFound
        first = log[0].event
        if first.kind is EventKind.MESSAGE:
            return Answer(EventKind.MESSAGE, view.dialect, self._codec.spelled(first, view.dialect))
        fold = partial(
            self._codec.snapshot,
            await self._engine.tasks.turns(task),
            log,
            dialect=view.dialect,
            history_length=view.history_length,
            alias=view.alias,
            artifacts=view.artifacts,
        )
        body = await asyncio.to_thread(fold) if _is_long(log) else fold()
        return Answer(EventKind.TASK, view.dialect, body)

    async def each(self, rows: Sequence[TaskRow], view: TaskView) -> Sequence[bytes]:
        """For a list, where one task must not hide the others: what cannot be said of it is left out, and marked."""
        tasks = []
        for row in rows:
            try:
                tasks.append((await self.now(row.id, view)).body)
            except TaskNotFound:
                continue  # admitted, but not shown to anybody yet
            except InvalidAnswer:
                tasks.append(self._codec.outline(row, view.dialect))
        return tasks

    async def as_of(self, task: TaskId, at: Cursor) -> Logged:
        """The Task after event `at`, or as of now if the log is not there yet, as an event in its true place."""
        log = await self._engine.events.read(task, upto=at)
        told = await self.of(task, log, TaskView(log[0].event.dialect if log else ""))
        state = next((e.event.state for e in reversed(log) if e.event.state is not None), None)
        return Logged(log[-1].cursor, Event(EventKind.TASK, state, told.dialect, told.body))


def _is_long(log: Sequence[Logged]) -> bool:
    """To be folded beside the loop, so that others are answered meanwhile."""
    return len(log) > _FOLDED_HERE or sum(len(logged.event.body) for logged in log) > _FOLDED_HERE * 1024


def answered_in(asked: str | None, row: TaskRow) -> str:
    """Who asked under a name that two versions share is answered in one of these, whatever the task was begun in."""
    if asked is None:
        return row.dialect if row.dialect in _SHARED else _SHARED[-1]
    return row.dialect if asked == ITS_OWN else asked


def readable(rows: Sequence[TaskRow]) -> int:
    """How many of a page can be read in one go: as many as their logs are small, and at least one."""
    size = 0
    for count, row in enumerate(rows):
        size += row.size
        if size > _READ_AT_ONCE and count:
            return count
    return len(rows)
