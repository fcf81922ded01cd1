"""The task changes port: what happens to a caller's tasks, for those who watch them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from rolecall.model.ids import Caller
from rolecall.model.task import TaskChange


class TaskFeed(Protocol):
    """One reader of the changes of a caller's tasks: stored, then live, in order, no gap, no repeat; without those of deleted
    tasks.

    It reads stored changes until it has all, then it waits for new ones. Where it cannot keep up it reads stored ones again. It
    must be stopped.
    """

    @property
    def is_behind(self) -> bool:
        """The next changes are in the store alone."""

    @property
    def revision(self) -> int | None:
        """Of the newest change that the reader has. None: not known before the first `stored`."""

    async def stored(self) -> Sequence[TaskChange]:
        """The next stored changes, at most a page; empty: there are none now. It delays no other operation of the store;
        whoever calls it limits how many run at once.
        """

    async def live(self) -> Sequence[TaskChange]:
        """Wait for new changes. Empty: none came for `idle`, it is behind, or it was stopped."""

    def stop(self) -> None:
        """Again: no effect."""


class TaskChanges(Protocol):
    """A task changes when it is admitted, when its state does, and when it ends, or turns out to be none (see TaskChange)."""

    def follow(self, caller: Caller, *, after: int | None, idle: timedelta) -> TaskFeed:
        """The changes of the caller's tasks with a revision above `after`. None, or a revision that is still to come (it is of
        another store): from now on. A change is there as long as its task; one of a task that no worker took is kept as one of
        a few.
        """
