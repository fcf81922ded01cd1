"""Tasks under their names: the hub's id, or one of their caller's own making, where its dialect lets it make one."""

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
        """`window`: for how long after a task's end the same message is still the same call."""
        self._tasks = deps.engine.tasks
        self._clock = deps.clock
        self._relays = relays
        self._window = window.total_seconds()
        self._locks: WeakValueDictionary[tuple[Caller, str], asyncio.Lock] = WeakValueDictionary()

    async def find(self, caller: Caller, task: TaskId, target: Target) -> TaskRow:
        """Unknown, somebody else's or of another role: all the same to the caller."""
        row = await self.known(caller, task)
        try:
            if row is None:
                raise TaskNotFound
            check_agrees(row, target)
        except TaskNotFound as error:
            raise TaskNotFound(f"Task not found: {task}") from error
        return row

    async def known(self, caller: Caller, name: str) -> TaskRow | None:
        """By the hub's id, or by the one that the caller made."""
        try:
            return await self._tasks.get(caller, TaskId(name))
        except TaskNotFound:
            task = await self._tasks.keyed(caller, alias_key(name))
        return await self._tasks.get(caller, task) if task is not None else None

    def alone(self, caller: Caller, alias: str) -> AbstractAsyncContextManager[object]:
        """Calls under one alias come one after the other: before that nobody can say what the second of them means."""
        return self._locks.setdefault((caller, alias), asyncio.Lock()) if alias else nullcontext()

    async def said_again(self, caller: Caller, send: Send, content: bytes) -> Call | None:
        """The call that this message has made already, where messages have no ids and only their task has a name. The last
        one once more is the same call, unless its task asks again: then it is an answer in the same words.
        """
        row = await self.known(caller, send.alias)
        if row is None:
            return None
        turns = await self._tasks.turns(row.id)
        if not turns:
            return None  # it has just been forgotten
        relay = self._relays.of(row.id)
        asks_again = len(turns) > 1 and row.state in PAUSED and (relay is None or relay.rests or relay.over)
        long_ended = row.ended and self._clock.wall() - row.updated > self._window
        if content_of(turns[-1]) != content or asks_again or long_ended:
            return None
        return Call(row.id, row.role, turns[-1].after, content, relay)


def alias_key(alias: str) -> str:
    """Beside the keys of Idempotency-Key headers, which hold no line breaks."""
    return f"alias\n{alias}"
