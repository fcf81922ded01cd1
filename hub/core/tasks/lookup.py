"""Finds tasks by the hub's id, or by the alias that the caller gave, in dialects that allow one."""

from __future__ import annotations

from datetime import timedelta

from hub.core.routing.router import check_agrees
from hub.ports.state.task_store import TaskStore
from rolecall.errors import TaskNotFound
from rolecall.model.call import digest
from rolecall.model.command import Target
from rolecall.model.ids import Caller, TaskId
from rolecall.model.task import TaskRow

_BY_ALIAS = "@"
"""In place of a role in the name of a call; no role has this name."""


class TaskLookup:
    def __init__(self, tasks: TaskStore) -> None:
        self._tasks = tasks

    async def find(self, caller: Caller, task: TaskId, target: Target) -> TaskRow:
        """TaskNotFound, the same for a task that is unknown, of another caller, or of another role."""
        row = await self.known(caller, task)
        try:
            if row is None:
                raise TaskNotFound
            check_agrees(row, target)
        except TaskNotFound as error:
            raise TaskNotFound(f"Task not found: {task}") from error
        return row

    async def known(self, caller: Caller, name: str) -> TaskRow | None:
        """The task with the hub's id or the caller's alias `name`. None: unknown."""
        try:
            return await self._tasks.get(caller, TaskId(name))
        except TaskNotFound:
            # An alias is known as long as its task, however long ago that ended.
            call = await self._tasks.find_call(alias_digest(caller, name), remembered=timedelta())
        return await self._tasks.get(caller, call.task) if call is not None else None


def alias_digest(caller: Caller, alias: str) -> bytes:
    return digest(*caller, _BY_ALIAS, alias)
