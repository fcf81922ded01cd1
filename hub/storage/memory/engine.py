"""The memory engine."""

from __future__ import annotations

from hub.ports.clock import Clock
from hub.ports.shares import Share, Unlimited
from hub.storage.common.cached_task import CachedTask
from hub.storage.memory.events import MemoryLog
from hub.storage.memory.files import MemoryFiles
from hub.storage.memory.pushes import MemoryPushes
from hub.storage.memory.registry import MemoryRegistry
from hub.storage.memory.summaries import MemorySummaries
from hub.storage.memory.task_changes import MemoryChanges
from hub.storage.memory.tasks import MemoryTasks
from hub.storage.memory.usage import MemoryUsage
from rolecall.model.ids import TaskId
from rolecall.model.task import Branch


class MemoryEngine:
    def __init__(self, clock: Clock, *, disk: Share | None = None) -> None:
        disk = disk or Unlimited()
        tasks: dict[TaskId, CachedTask] = {}
        self._registry = MemoryRegistry(clock)
        self._pushes = MemoryPushes(tasks, clock)
        self._files = MemoryFiles(tasks, clock, disk)
        branches: dict[TaskId, Branch] = {}
        self._usage = MemoryUsage(clock, branches)
        self._summaries = MemorySummaries(clock, disk)
        self._task_changes = changes = MemoryChanges(clock)
        self._tasks = MemoryTasks(
            tasks, branches, clock, self._pushes, self._files, self._usage, self._summaries, disk, changes
        )
        self._events = MemoryLog(tasks, clock, self._pushes, self._files, self._usage, disk, changes)

    @property
    def registry(self) -> MemoryRegistry:
        return self._registry

    @property
    def tasks(self) -> MemoryTasks:
        return self._tasks

    @property
    def events(self) -> MemoryLog:
        return self._events

    @property
    def task_changes(self) -> MemoryChanges:
        return self._task_changes

    @property
    def pushes(self) -> MemoryPushes:
        return self._pushes

    @property
    def files(self) -> MemoryFiles:
        return self._files

    @property
    def usage(self) -> MemoryUsage:
        return self._usage

    @property
    def summaries(self) -> MemorySummaries:
        return self._summaries

    async def __aenter__(self) -> MemoryEngine:
        self._files.folder.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._files.folder.close()

    async def ping(self) -> None:
        return None

    def disk_room(self) -> None:
        return None
