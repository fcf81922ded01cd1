"""The event log of the memory engine: log tails that are never trimmed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

from hub.ports.clock import Clock
from hub.ports.shares import Share
from hub.ports.state.event_log import LogEntry
from hub.storage.common.cached_task import CachedTask, numbered
from hub.storage.common.log_tail import LogFollower, LogTail
from hub.storage.memory.files import MemoryFiles
from hub.storage.memory.pushes import MemoryPushes
from hub.storage.memory.task_changes import MemoryChanges
from hub.storage.memory.usage import MemoryUsage
from rolecall.errors import HubError, LogMoved, TaskNotFound
from rolecall.model.a2a import Logged
from rolecall.model.ids import START, Cursor, TaskId


class MemoryLog:
    def __init__(
        self,
        tasks: dict[TaskId, CachedTask],
        clock: Clock,
        pushes: MemoryPushes,
        files: MemoryFiles,
        usage: MemoryUsage,
        disk: Share,
        changes: MemoryChanges,
    ) -> None:
        self._tasks = tasks
        self._clock = clock
        self._pushes = pushes
        self._files = files
        self._usage = usage
        self._disk = disk
        self._changes = changes

    def open(self, task: TaskId) -> MemoryOpenLog:
        return MemoryOpenLog(self, task)

    def append(self, task: TaskId, entry: LogEntry, after: Cursor) -> HubError | None:
        cached = self._tasks.get(task)
        if cached is None or cached.closed or cached.end != after:
            return LogMoved()
        logged, effect = numbered(entry.events, after, cached.state)
        cached.advance(entry, logged, effect, self._clock.wall())
        self._disk.fill(cached.workspace, effect.size)
        self._files.bind(task, entry.files)
        if entry.usage:
            self._usage.add(cached.row, entry.usage)
        for changed in effect.changes:
            self._changes.add(cached.change(self._changes.next_revision(), changed))
        if cached.pushes:
            self._pushes.on_append(task)
        return None

    async def read(self, task: TaskId, *, after: Cursor = START, upto: Cursor | None = None) -> Sequence[Logged]:
        cached = self._tasks.get(task)
        return cached.since(after, upto) if cached is not None else ()

    async def last_events(self, tasks: Sequence[TaskId], *, largest: int) -> Mapping[TaskId, Logged]:
        found = {task: log[-1] for task in tasks if (log := await self.read(task))}
        return {task: last for task, last in found.items() if len(last.event.body) <= largest}

    def follow(self, task: TaskId, *, after: Cursor, idle: timedelta) -> LogFollower:
        return LogFollower(self, task, self._tasks.get(task), after=after, idle=idle)

    async def tail(self, task: TaskId) -> LogTail:
        cached = self._tasks.get(task)
        if cached is None:
            raise TaskNotFound
        return cached

    async def page(self, task: TaskId, after: Cursor) -> Sequence[Logged]:
        return (await self.tail(task)).page(after)


class MemoryOpenLog:
    def __init__(self, log: MemoryLog, task: TaskId) -> None:
        self._log = log
        self._task = task

    def append(self, entry: LogEntry, *, after: Cursor, done: Callable[[HubError | None], None]) -> None:
        asyncio.get_running_loop().call_soon(self._append, entry, after, done)

    def _append(self, entry: LogEntry, after: Cursor, done: Callable[[HubError | None], None]) -> None:
        done(self._log.append(self._task, entry, after))
