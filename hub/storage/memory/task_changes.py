"""The changes of all tasks in memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection
from heapq import merge
from itertools import islice

from hub.ports.clock import Clock
from hub.storage.common.task_changes import DISCARDED, PAGE, CallerChanges, ChangePage, by_revision, index_after
from rolecall.model.ids import Caller, TaskId
from rolecall.model.task import TaskChange


class MemoryChanges(CallerChanges):
    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._stored: defaultdict[Caller, list[TaskChange]] = defaultdict(list)
        self._discarded: defaultdict[Caller, list[tuple[int, TaskChange]]] = defaultdict(list)
        """With the revision of the admission."""

    def add(self, change: TaskChange) -> None:
        self._stored[change.caller].append(change)
        self.publish(change)

    def discard(self, gone: TaskChange) -> None:
        """In place of what is stored of the task."""
        stored, discarded = self._stored[gone.caller], self._discarded[gone.caller]
        discarded.append((next(change.revision for change in stored if change.id == gone.id), gone))
        del discarded[:-DISCARDED]
        self._stored[gone.caller] = [change for change in stored if change.id != gone.id]
        self.publish(gone)

    def forget(self, tasks: Collection[TaskId]) -> None:
        super().forget(tasks)
        for caller, stored in self._stored.items():
            self._stored[caller] = [change for change in stored if change.id not in tasks]

    def forget_discarded(self, caller: Caller, context: str | None) -> None:
        self._keep_discarded(caller, lambda gone: context not in (None, gone.context))

    def forget_old(self, before: float, limit: int) -> int:
        """Those that were discarded before that time; returns how many."""
        found = sorted((gone for kept in self._discarded.values() for _, gone in kept), key=by_revision)
        old = {gone.revision for gone in found[:limit] if gone.updated < before}
        for caller in list(self._discarded):
            self._keep_discarded(caller, lambda gone: gone.revision not in old)
        return len(old)

    async def newest_of(self, caller: Caller) -> int:
        return max([change.revision for change in (*self._stored[caller][-1:], *self._gone(caller)[-1:])], default=0)

    async def page(self, caller: Caller, after: int) -> ChangePage:
        stored = self._stored[caller]
        gone = [gone for admitted, gone in self._discarded[caller] if admitted <= after < gone.revision]
        found = list(islice(merge(stored[index_after(stored, after) :], gone, key=by_revision), PAGE + 1))
        return ChangePage(found[:PAGE], found[PAGE - 1].revision if len(found) > PAGE else None)

    def _gone(self, caller: Caller) -> list[TaskChange]:
        return [gone for _, gone in self._discarded[caller]]

    def _keep_discarded(self, caller: Caller, is_kept: Callable[[TaskChange], bool]) -> None:
        self._discarded[caller] = [(admitted, gone) for admitted, gone in self._discarded[caller] if is_kept(gone)]
