"""The tasks that are in memory: every one that somebody follows, and those that were written to of late."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from weakref import WeakValueDictionary

from hub.storage.common.cached_task import CachedTask
from rolecall.model.ids import TaskId

OPEN, ENDED = 4_096, 256
BYTES = 16 * 1024 * 1024


class _LruBucket:
    """So many tasks of so many bytes, the oldest first."""

    __slots__ = ("_most", "_size", "_tasks", "_weight")

    def __init__(self, most: int, size: int) -> None:
        self._most = most
        self._size = size
        self._tasks: OrderedDict[TaskId, tuple[CachedTask, int]] = OrderedDict()
        self._weight = 0

    def find(self, task: TaskId) -> CachedTask | None:
        found = self._tasks.get(task)
        return found[0] if found is not None else None

    def put(self, task: TaskId, held: CachedTask) -> bool:
        """What has to make room for it is shed. True: it was not there."""
        new = not self.take(task)
        weight = held.weight
        self._tasks[task] = held, weight
        self._weight += weight
        while len(self._tasks) > self._most or (self._weight > self._size and len(self._tasks) > 1):
            _, (oldest, its_weight) = self._tasks.popitem(last=False)
            self._weight -= its_weight
            oldest.shed()
        return new

    def take(self, task: TaskId) -> bool:
        """Was it there?"""
        found = self._tasks.pop(task, None)
        if found is None:
            return False
        self._weight -= found[1]
        return True


class _Load:
    """One reading of a task. `outdated`: the task was written to meanwhile, so that what was read may be old."""

    __slots__ = ("outdated",)

    def __init__(self) -> None:
        self.outdated = False


class Cache:
    """A follower holds its task's `Held`, so that the cache finds it for as long as it is followed. The rest goes, oldest
    first, when there are too many of them or they weigh too much; a task that is followed then keeps only its place.

    Of those that have ended only a few stay: hardly anybody asks again, and memory that is used once costs its time twice,
    when it is taken and when it is given back.
    """

    def __init__(self, *, open_tasks: int = OPEN, ended: int = ENDED, size: int = BYTES) -> None:
        self._known: WeakValueDictionary[TaskId, CachedTask] = WeakValueDictionary()
        self._open = _LruBucket(open_tasks, size)
        self._ended = _LruBucket(ended, size // 4)
        self._loading: dict[TaskId, set[_Load]] = {}

    def find(self, task: TaskId) -> CachedTask | None:
        return self._open.find(task) or self._ended.find(task) or self._known.get(task)

    def keep(self, task: TaskId, held: CachedTask) -> None:
        """Take in, or note that it has grown, or ended."""
        moved = held.closed and self._open.take(task)
        if (self._ended if held.closed else self._open).put(task, held) and not moved:
            self._known[task] = held

    def drop(self, task: TaskId) -> None:
        self._outdate(task)
        held = self.find(task)
        self._open.take(task)
        self._ended.take(task)
        self._known.pop(task, None)
        if held is not None:
            held.close()

    def written(self, task: TaskId) -> CachedTask | None:
        """The task that a write has just changed. None: not in memory; whoever is loading it has to start again."""
        # Also while it is in memory: it may have left again before the load has ended.
        self._outdate(task)
        return self.find(task)

    async def load(self, task: TaskId, read: Callable[[TaskId], Awaitable[CachedTask]]) -> CachedTask:
        while (held := self.find(task)) is None:
            load = _Load()
            self._loading.setdefault(task, set()).add(load)
            try:
                loaded = await read(task)
            finally:
                self._end(task, load)
            if not load.outdated and self.find(task) is None:
                self.keep(task, loaded)
        return held

    def _end(self, task: TaskId, load: _Load) -> None:
        loads = self._loading[task]
        loads.remove(load)
        if not loads:
            del self._loading[task]

    def _outdate(self, task: TaskId) -> None:
        for load in self._loading.get(task, ()):
            load.outdated = True
