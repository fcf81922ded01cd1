"""The event log of the memory engine: tails that are never cut."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from hub.ports.clock import Clock
from hub.ports.event_log import LogEntry
from hub.storage.common.cached_task import CachedTask, numbered, outcome
from hub.storage.common.log_tail import LogFollower, LogTail
from hub.storage.memory.pushes import MemoryPushes
from rolecall.errors import LogMoved, TaskNotFound
from rolecall.model.a2a import Logged
from rolecall.model.ids import START, Cursor, TaskId


class MemoryLog:
    def __init__(self, held: dict[TaskId, CachedTask], clock: Clock, pushes: MemoryPushes) -> None:
        self._held = held
        self._clock = clock
        self._pushes = pushes

    async def append(self, task: TaskId, entry: LogEntry, *, after: Cursor) -> Cursor:
        held = self._held.get(task)
        if held is None or held.closed or held.end != after:
            raise LogMoved
        held.advance(entry, numbered(entry.events, after), outcome(entry.events), self._clock.wall())
        if held.pushes:
            self._pushes.grown(task)
        return held.end

    async def read(self, task: TaskId, *, after: Cursor = START, upto: Cursor | None = None) -> Sequence[Logged]:
        held = self._held.get(task)
        return held.since(after, upto) if held is not None else ()

    def follow(self, task: TaskId, *, after: Cursor, idle: timedelta) -> LogFollower:
        return LogFollower(self, task, self._held.get(task), after=after, idle=idle)

    async def tail(self, task: TaskId) -> LogTail:
        held = self._held.get(task)
        if held is None:
            raise TaskNotFound
        return held

    async def page(self, task: TaskId, after: Cursor) -> Sequence[Logged]:
        return (await self.tail(task)).page(after)
