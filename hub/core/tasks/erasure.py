"""Erases tasks with all that is stored of them, for whom they belong to. What runs is cancelled first."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from hub.core.files.files import Files
from hub.core.push.configs import PushConfigs
from hub.core.relay.cancel import cancel, end
from hub.core.relay.context import Dependencies
from hub.core.relay.relays import Relays
from hub.core.tasks.lookup import TaskLookup
from rolecall.errors import HubError, LogMoved, StoreUnavailable, TaskNotFound
from rolecall.model.command import Target
from rolecall.model.ids import Caller, TaskId
from rolecall.model.task import TaskRow

_CANCEL_WITHIN = 5.0
"""Seconds for a worker to take the cancellation. Then the task ends in the log alone."""
_AT_ONCE = 100
"""Tasks that one request erases at most."""
_LONGEST = 10.0
"""Seconds after which a request begins with no further task."""


class Erased(NamedTuple):
    tasks: int
    more: bool
    """There are others: ask again."""


class Erasure:
    def __init__(self, deps: Dependencies, relays: Relays, lookup: TaskLookup, push: PushConfigs, files: Files) -> None:
        self._deps = deps
        self._tasks = deps.engine.tasks
        self._summaries = deps.engine.summaries
        self._relays = relays
        self._lookup = lookup
        self._push = push
        self._files = files

    async def task(self, caller: Caller, task: TaskId) -> Erased:
        """Or its summary. TaskNotFound, StoreUnavailable."""
        try:
            row = await self._lookup.find(caller, task, Target())
        except TaskNotFound:
            if not await self._summaries.erase(caller, (task,)):
                raise
        else:
            await self._erase(row)
            await self._files.sweep()
        return Erased(1, more=False)

    async def all_of(self, owner: Caller, context: str | None = None, *, ended_by: float | None = None) -> Erased:
        """The tasks and summaries that the owner has now: in that context, and only those that had ended by that time of the
        wall clock, if these are given; without both, also the files that no task has, and the name in sums of usage.
        StoreUnavailable: some may be erased.
        """
        erased = await self._tasks_of(owner, context, ended_by)
        await self._files.sweep()
        if context is None and ended_by is None and not erased.more:
            await self._files.erase_of(owner)
            await self._forget_name(owner)
        return erased

    async def _tasks_of(self, owner: Caller, context: str | None, ended_by: float | None) -> Erased:
        began, now = self._deps.clock.monotonic(), self._deps.clock.wall()
        async with self._deps.shares.lists.slot(owner.workspace):
            rows = await self._tasks.all_of(owner, context=context, admitted_by=now, ended_by=ended_by, limit=_AT_ONCE + 1)
        for count, row in enumerate(rows):
            if count == _AT_ONCE or self._deps.clock.monotonic() - began > _LONGEST:
                return Erased(count, more=True)
            await self._erase(row)
        if ended_by is None:
            await self._tasks.forget_discarded(owner, context=context)
        async with self._deps.shares.lists.slot(owner.workspace):
            old = await self._summaries.all_of(owner, context=context, ended_by=ended_by, limit=_AT_ONCE)
        count = len(rows) + await self._summaries.erase(owner, old)
        return Erased(count, more=len(old) == _AT_ONCE)

    async def _erase(self, row: TaskRow) -> None:
        if not row.ended:
            await self._end(row)
        more = True
        while more:
            began = self._deps.clock.monotonic()
            more = await self._tasks.erase(row.id)
            self._push.erased(row.id)
            await asyncio.sleep(self._deps.clock.monotonic() - began)  # as long as it took, so that calls can run

    async def _forget_name(self, owner: Caller) -> None:
        """The sums of usage stay, and are nobody's."""
        more = True
        while more:
            began = self._deps.clock.monotonic()
            more = await self._deps.engine.usage.forget_holder(owner)
            await asyncio.sleep(self._deps.clock.monotonic() - began)

    async def _end(self, row: TaskRow) -> None:
        """Whatever its worker does. StoreUnavailable."""
        try:
            async with asyncio.timeout(_CANCEL_WITHIN):
                await cancel(self._deps, self._relays, row)
        except StoreUnavailable:
            raise
        except (HubError, TimeoutError):
            pass
        try:
            now = await self._tasks.get(row.caller, row.id)
            if not now.ended:
                await end(self._deps, self._relays, now)
        except (TaskNotFound, LogMoved):
            pass  # its answer was a bare message, it was taken back, or it has ended meanwhile
