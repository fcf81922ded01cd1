"""The tasks in memory: those that a reader follows, and those that were written recently."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from weakref import WeakValueDictionary

from hub.storage.common.cached_task import CachedTask
from rolecall.model.ids import TaskId

OPEN, ENDED = 4_096, 256
BYTES = 16 * 1024 * 1024
_GROWTH = 2048
"""Bytes that a task in memory may grow by before its bucket counts them."""


class _LruBucket:
    """An LRU bucket with a limit of tasks and of bytes."""

    __slots__ = ("_least", "_limit", "_size", "_weight", "tasks")

    def __init__(self, limit: int, size: int, *, least: int = 0) -> None:
        """`least`: so many tasks stay, however large they are."""
        self._limit = limit
        self._least = least
        self._size = size
        self.tasks: OrderedDict[TaskId, CachedTask] = OrderedDict()
        self._weight = 0

    def put(self, task: TaskId, cached: CachedTask) -> list[tuple[TaskId, CachedTask]]:
        """Add or update a task. Returns the evicted ones, which have dropped their contents."""
        self.remove(task)
        weight = cached.kept_weight = cached.weight
        self.tasks[task] = cached
        self._weight += weight
        surplus: list[tuple[TaskId, CachedTask]] = []
        while len(self.tasks) > self._limit or (self._weight > self._size and len(self.tasks) > self._least):
            oldest = self.tasks.popitem(last=False)
            self._weight -= oldest[1].kept_weight
            oldest[1].drop_contents()
            surplus.append(oldest)
        return surplus

    def remove(self, task: TaskId) -> None:
        cached = self.tasks.pop(task, None)
        if cached is not None:
            self._weight -= cached.kept_weight


class _Load:
    """One read of a task from the store. `outdated`: the task was written meanwhile, so the result may be old."""

    __slots__ = ("outdated",)

    def __init__(self) -> None:
        self.outdated = False


class Cache:
    """Tasks are evicted, oldest first, when there are too many or they use too much memory. An open task is found as long as a
    follower references it: when it is evicted it drops its contents only.

    Few ended tasks are kept: they are rarely read again, and allocating and freeing their memory costs time.
    """

    def __init__(self, *, open_tasks: int = OPEN, ended: int = ENDED, size: int = BYTES) -> None:
        self._followed: WeakValueDictionary[TaskId, CachedTask] = WeakValueDictionary()
        """Evicted before they had ended. A task that has ended does not change: its follower's and a new one do not differ."""
        self._open = _LruBucket(open_tasks, size, least=1)
        self._ended = _LruBucket(ended, size // 4)
        self._loading: dict[TaskId, set[_Load]] = {}

    @property
    def loading(self) -> int:
        """Tasks that are being read from the store."""
        return len(self._loading)

    def find(self, task: TaskId) -> CachedTask | None:
        return self._open.tasks.get(task) or self._ended.tasks.get(task) or self._followed.get(task)

    def keep(self, task: TaskId, cached: CachedTask) -> None:
        """Add the task, or update its size and whether it has ended."""
        cached.kept_size = cached.size
        if cached.closed:
            self._open.remove(task)
            self._ended.put(task, cached)
        else:
            for its_id, oldest in self._open.put(task, cached):
                self._followed[its_id] = oldest

    def on_append(self, cached: CachedTask, *, dropped: bool) -> None:
        """An append to a task that is held has been committed. Small growth is noticed later, because that costs less.
        `dropped`: the task was dropped before the commit.
        """
        if self._loading:
            self._mark_outdated(cached.task)
        if not dropped and (cached.closed or abs(cached.size - cached.kept_size) > _GROWTH):
            self.keep(cached.task, cached)

    def drop(self, task: TaskId) -> None:
        self._mark_outdated(task)
        cached = self.find(task)
        self._open.remove(task)
        self._ended.remove(task)
        self._followed.pop(task, None)
        if cached is not None:
            cached.close()

    def on_write(self, task: TaskId) -> CachedTask | None:
        """The task that a write has just changed. None: not in memory. Loads that are under way start again."""
        # Loads are marked even if the task is in memory: it may be evicted before they end.
        self._mark_outdated(task)
        return self.find(task)

    async def load(self, task: TaskId, read: Callable[[TaskId], Awaitable[CachedTask]]) -> CachedTask:
        while (cached := self.find(task)) is None:
            load = _Load()
            self._loading.setdefault(task, set()).add(load)
            try:
                loaded = await read(task)
            finally:
                self._end_load(task, load)
            if not load.outdated and self.find(task) is None:
                self.keep(task, loaded)
                return loaded
        return cached

    def _end_load(self, task: TaskId, load: _Load) -> None:
        loads = self._loading[task]
        loads.remove(load)
        if not loads:
            del self._loading[task]

    def _mark_outdated(self, task: TaskId) -> None:
        for load in self._loading.get(task, ()):
            load.outdated = True
