"""Finds tasks by the hub's id, or by the alias that the caller gave, in dialects that allow one."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import timedelta
from weakref import WeakValueDictionary

from hub.core.admission.idempotency import Call, content_of
from hub.core.relay.context import Dependencies
from hub.core.relay.relays import Relays
from hub.core.routing.router import check_agrees
from rolecall.errors import TaskNotFound
from rolecall.model.a2a import PAUSED
from rolecall.model.command import Send, Target
from rolecall.model.ids import Caller, TaskId
from rolecall.model.task import TaskRow


class TaskLookup:
    def __init__(self, deps: Dependencies, relays: Relays, window: timedelta) -> None:
        """`window`: how long after a task's end a repeated message is still the same call."""
        self._tasks = deps.engine.tasks
        self._clock = deps.clock
        self._relays = relays
        self._window = window.total_seconds()
        self._locks: WeakValueDictionary[tuple[Caller, str], asyncio.Lock] = WeakValueDictionary()

    async def find(self, caller: Caller, task: TaskId, target: Target) -> TaskRow:
        """TaskNotFound, the same for a task that is unknown, of another caller, or of another role."""
        row = await self.known(caller, task)
        try:
            if row is None:
                raise TaskNotFound
            check_agrees(row, target)
        except TaskNotFound as error:
            raise TaskNotFound(f"Task not found: {task}") from error
        return row

    async def known(self, caller: Caller, name: str) -> TaskRow | None:
        """The task with the hub's id or the caller's alias `name`. None: unknown."""
        try:
            return await self._tasks.get(caller, TaskId(name))
        except TaskNotFound:
            task = await self._tasks.keyed(caller, alias_key(name))
        return await self._tasks.get(caller, task) if task is not None else None

    def lock(self, caller: Caller, alias: str) -> AbstractAsyncContextManager[object]:
        """Calls with one alias run one after the other: what the second one means depends on the first."""
        return self._locks.setdefault((caller, alias), asyncio.Lock()) if alias else nullcontext()

    async def repeated_call(self, caller: Caller, send: Send, content: bytes) -> Call | None:
        """The call that this message has started already, in a dialect whose messages have no ids. A repeat of the task's last
        message is the same call, unless the task has paused again: then it is a new answer with the same content.
        """
        row = await self.known(caller, send.alias)
        if row is None:
            return None
        turns = await self._tasks.turns(row.id)
        if not turns:
            return None  # it has just been deleted
        relay = self._relays.of(row.id)
        paused_again = len(turns) > 1 and row.state in PAUSED and (relay is None or relay.rests or relay.over)
        long_ended = row.ended and self._clock.wall() - row.updated > self._window
        if content_of(turns[-1]) != content or paused_again or long_ended:
            return None
        return Call(row.id, row.role, turns[-1].after, content, relay)


def alias_key(alias: str) -> str:
    """Cannot equal the key of an Idempotency-Key header, which has no line break."""
    return f"alias\n{alias}"
