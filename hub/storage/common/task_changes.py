"""The newest changes of tasks in memory, and their readers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Collection, Sequence
from datetime import timedelta
from operator import attrgetter
from typing import NamedTuple

from hub.ports.clock import Clock
from hub.storage.common.cached_task import CachedTask, change_of
from hub.storage.common.waiting import IdleWait, wake_all
from rolecall.model.a2a import Logged
from rolecall.model.ids import Caller, TaskId
from rolecall.model.task import TaskChange, TaskRow

PAGE = 100
"""Changes that a reader gets at once: one whose client has stopped reading keeps so many in memory."""
RECENT = 1_000
"""Changes of one caller in memory, for readers that are nearly up to date."""
KEPT = 10_000
"""Changes of all callers in memory."""
DISCARDED = 100
"""Discarded tasks of one caller that are remembered."""
by_revision = attrgetter("revision")


class ChangePage(NamedTuple):
    """`more_after`: where the next page begins; None: there were no more."""

    changes: Sequence[TaskChange]
    more_after: int | None


class _RecentChanges:
    """The newest changes of one caller, as long as somebody reads them: all those above `floor`."""

    __slots__ = ("changes", "floor", "readers", "waiting")

    def __init__(self, floor: int) -> None:
        self.floor = floor
        self.changes: list[TaskChange] = []
        self.readers = 0
        self.waiting: set[ChangeFollower] = set()

    def since(self, after: int) -> Sequence[TaskChange]:
        first = index_after(self.changes, after)
        return self.changes[first : first + PAGE]


class CallerChanges(ABC):
    """Numbers the changes, and hands each to those who wait for it when it has been stored. An engine adds what is stored."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._recent: dict[Caller, _RecentChanges] = {}
        self._kept = 0
        self._newest = 0
        self._published = 0

    @abstractmethod
    async def newest_of(self, caller: Caller) -> int:
        """The newest stored revision of the caller; 0: none."""

    @abstractmethod
    async def page(self, caller: Caller, after: int) -> ChangePage: ...

    # --- what writes

    def continue_after(self, revision: int) -> None:
        """The newest one of an earlier hub: the clock may have been set back."""
        self._newest = self._published = max(self._newest, revision)

    def next_revision(self) -> int:
        """In the order in which changes are stored."""
        now = int(self._clock.wall() * 1e6)
        self._newest = now if now > self._newest else self._newest + 1
        return self._newest

    def publish(self, change: TaskChange) -> None:
        """It is stored. In the order of revisions."""
        self._published = change.revision
        recent = self._recent.get(change.caller)
        if recent is not None:
            self._add(recent, change)

    def publish_admission(self, row: TaskRow, parent: TaskId | None, revision: int) -> None:
        """It is stored. This and the next make nothing of it unless somebody reads: every call comes here."""
        self._published = revision
        recent = self._recent.get(row.caller)
        if recent is not None:
            self._add(recent, change_of(row, parent, revision, state=row.state))

    def publish_events(self, cached: CachedTask, changed: Sequence[tuple[int, Logged]]) -> None:
        """The revision and the event of each change of a task, in order."""
        self._published = changed[-1][0]
        recent = self._recent.get(cached.caller)
        if recent is not None:
            for revision, logged in changed:
                self._add(recent, cached.change(revision, logged))

    def forget(self, tasks: Collection[TaskId]) -> None:
        """They have been deleted."""
        for recent in self._recent.values():
            if recent.changes:
                kept = [change for change in recent.changes if change.id not in tasks]
                self._kept -= len(recent.changes) - len(kept)
                recent.changes = kept

    # --- who reads

    def follow(self, caller: Caller, *, after: int | None, idle: timedelta) -> ChangeFollower:
        recent = self._recent.get(caller)
        if recent is None:
            recent = self._recent[caller] = _RecentChanges(self._published)
        recent.readers += 1
        known = None if after is None or after > self._newest else after
        return ChangeFollower(self, caller, recent, after=known, idle=idle)

    def leave(self, caller: Caller, recent: _RecentChanges) -> None:
        recent.readers -= 1
        if not recent.readers:
            del self._recent[caller]
            self._kept -= len(recent.changes)

    def _add(self, recent: _RecentChanges, change: TaskChange) -> None:
        """Where there is no room, the caller whose task has changed gives way: readers that lag read what is stored."""
        recent.changes.append(change)
        self._kept += 1
        if len(recent.changes) > RECENT or self._kept > KEPT:
            recent.floor = recent.changes.pop(0).revision
            self._kept -= 1
        wake_all(recent.waiting)


class ChangeFollower(IdleWait):
    """Reads one caller's changes: from memory if that reaches back far enough, else from the store."""

    __slots__ = ("_after", "_caller", "_changes", "_recent", "revision")

    def __init__(
        self, changes: CallerChanges, caller: Caller, recent: _RecentChanges, *, after: int | None, idle: timedelta
    ) -> None:
        super().__init__(idle)
        self._changes = changes
        self._caller = caller
        self._recent = recent
        self._after = after
        self.revision = after

    @property
    def is_behind(self) -> bool:
        return self._after is None or self._after < self._recent.floor

    async def stored(self) -> Sequence[TaskChange]:
        if self._after is None:
            self._after = self.revision = await self._changes.newest_of(self._caller)
            return ()
        floor = self._recent.floor  # all up to there is stored
        page = await self._changes.page(self._caller, self._after)
        if page.changes:
            self._after = self.revision = page.changes[-1].revision
        self._after = max(self._after, floor) if page.more_after is None else page.more_after
        return page.changes

    async def live(self) -> Sequence[TaskChange]:
        while not (self._stopped or self.is_behind):
            assert self._after is not None
            batch = self._recent.since(self._after)
            if batch:
                self._after = self.revision = batch[-1].revision
                return batch
            self._recent.waiting.add(self)
            try:
                await self._start_wait()
            finally:
                self._recent.waiting.discard(self)
            if self._loop.time() >= self._deadline:
                break
        return ()

    def stop(self) -> None:
        if not self._stopped:
            self._changes.leave(self._caller, self._recent)
        super().stop()


def index_after(changes: Sequence[TaskChange], after: int) -> int:
    """Of the first one with a revision above `after`."""
    return bisect_right(changes, after, key=by_revision)
