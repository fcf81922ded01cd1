"""The tasks that are in memory: every one that somebody follows, and those that were written to of late."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from weakref import WeakValueDictionary

from hub.engines.held import Held
from hub.model.ids import TaskId

TASKS = 4_096
BYTES = 16 * 1024 * 1024


class _Load:
    """One reading of a task. `outdated`: the task was written to meanwhile, so that what was read may be old."""

    __slots__ = ("outdated",)

    def __init__(self) -> None:
        self.outdated = False


class Cache:
    """A follower holds its task's `Held`, so that the cache finds it for as long as it is followed. The rest goes, oldest
    first, when there are too many of them or they weigh too much; a task that is followed then keeps only its place.
    """

    def __init__(self, tasks: int = TASKS, size: int = BYTES) -> None:
        self._limits = (tasks, size)
        self._known: WeakValueDictionary[TaskId, Held] = WeakValueDictionary()
        self._recent: OrderedDict[TaskId, tuple[Held, int]] = OrderedDict()
        self._size = 0
        self._loading: dict[TaskId, set[_Load]] = {}

    def find(self, task: TaskId) -> Held | None:
        recent = self._recent.get(task)
        return recent[0] if recent is not None else self._known.get(task)

    def keep(self, task: TaskId, held: Held) -> None:
        """Take in, or note that it has grown."""
        known = self._recent.pop(task, None)
        weight = held.weight
        self._size += weight - (known[1] if known is not None else 0)
        self._recent[task] = (held, weight)
        if known is None:
            self._known[task] = held
        most, size = self._limits
        while len(self._recent) > most or (self._size > size and len(self._recent) > 1):
            _, (oldest, its_weight) = self._recent.popitem(last=False)
            self._size -= its_weight
            oldest.shed()

    def drop(self, task: TaskId) -> None:
        self._outdate(task)
        held = self.find(task)
        _, weight = self._recent.pop(task, (None, 0))
        self._size -= weight
        self._known.pop(task, None)
        if held is not None:
            held.close()

    def written(self, task: TaskId) -> Held | None:
        """The task that a write has just changed. None: not in memory; whoever is loading it has to start again."""
        # Also while it is in memory: it may have left again before the load has ended.
        self._outdate(task)
        return self.find(task)

    async def load(self, task: TaskId, read: Callable[[TaskId], Awaitable[Held]]) -> Held:
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
