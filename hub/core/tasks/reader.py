"""Reads a task from its log, as of now or as of an event, as callers see it."""

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
"""Bytes of log that are read for one page of a list."""
_FOLDED_ON_LOOP = 200
"""Events, or KiB of log, that are folded on the loop; a longer log is folded in a thread."""
_SHARED = ("0.1", "0.3")
"""These versions share the names of some methods."""


class TaskView(Value, frozen=True):
    """How a caller wants to see a task. `alias`: the caller's name for it."""

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
        """The task as of the end of `log`, or the bare message if that is the answer. TaskNotFound: it is not revealed yet."""
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

    async def documents(self, rows: Sequence[TaskRow], view: TaskView) -> Sequence[bytes]:
        """The tasks of a list. One that its dialect cannot express does not hide the others: it is a marked outline."""
        tasks = []
        for row in rows:
            try:
                tasks.append((await self.now(row.id, view)).body)
            except TaskNotFound:
                continue  # admitted, but not revealed yet
            except InvalidAnswer:
                tasks.append(self._codec.outline(row, view.dialect))
        return tasks

    async def as_of(self, task: TaskId, at: Cursor) -> Logged:
        """The Task after event `at`, or after the last event if the log is shorter, as an event with that cursor."""
        log = await self._engine.events.read(task, upto=at)
        answer = await self.of(task, log, TaskView(log[0].event.dialect if log else ""))
        state = next((e.event.state for e in reversed(log) if e.event.state is not None), None)
        return Logged(log[-1].cursor, Event(EventKind.TASK, state, answer.dialect, answer.body))


def _is_long(log: Sequence[Logged]) -> bool:
    """Whether to fold it in a thread, so that the loop serves others meanwhile."""
    return len(log) > _FOLDED_ON_LOOP or sum(len(logged.event.body) for logged in log) > _FOLDED_ON_LOOP * 1024


def answered_in(asked: str | None, row: TaskRow) -> str:
    """The dialect of the answer. A method name that 0.1 and 0.3 share is answered in one of these two."""
    if asked is None:
        return row.dialect if row.dialect in _SHARED else _SHARED[-1]
    return row.dialect if asked == ITS_OWN else asked


def readable(rows: Sequence[TaskRow]) -> int:
    """How many rows of a page can be read at once, by the size of their logs; at least one."""
    size = 0
    for count, row in enumerate(rows):
        size += row.size
        if size > _READ_AT_ONCE and count:
            return count
    return len(rows)
