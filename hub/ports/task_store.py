"""The task store port: a row per task, and the caller's messages to it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from rolecall.model.command import TaskQuery
from rolecall.model.ids import Caller, TaskId, WorkerId
from rolecall.model.push import SealedConfig
from rolecall.model.task import Conversation, TaskPage, TaskRow, Turn


class TaskStore(Protocol):
    """A row per task. It is never older than the task's log."""

    async def admit(self, row: TaskRow, turn: Turn, *, key: str | None = None, push: SealedConfig | None = None) -> None:
        """A new task with its first message, and the receiver that came with it; durable on return. `key` is the caller's
        own name for the call, and no two tasks of a caller may have the same. StoreUnavailable, also for a taken key.
        """

    async def keyed(self, caller: Caller, key: str) -> TaskId | None:
        """The caller's task with that key, a bare message included."""

    async def add_turn(self, task: TaskId, turn: Turn) -> None:
        """A further message of the caller; durable on return. It changes the task's `updated`, unless the task has ended."""

    async def drop_turn(self, task: TaskId, turn: Turn) -> None:
        """Take back that message, of which the caller was told that it was refused; durable on return. No effect unless it is
        the task's last, by its `after` and its id, and never on the one that was admitted.
        """

    async def assign(self, task: TaskId, worker: WorkerId, epoch: int, log_dialect: str) -> None:
        """The task's call goes to this worker from now on, in that dialect; durable on return."""

    async def discard(self, task: TaskId) -> None:
        """Remove a task that no worker heard of and no caller was told of."""

    async def get(self, caller: Caller, task: TaskId) -> TaskRow:
        """TaskNotFound: unknown, somebody else's, or one that turned out to be a bare message."""

    async def turns(self, task: TaskId) -> Sequence[Turn]:
        """In the order they were said; the first is the one that was admitted."""

    async def page(self, caller: Caller, query: TaskQuery) -> TaskPage:
        """Newest change first."""

    async def conversation(self, caller: Caller, context: str, role: str | None) -> Conversation | None:
        """The holder of that context's newest task, in that role where one is given."""

    async def paused(self, caller: Caller, context: str, role: str | None) -> Sequence[TaskId]:
        """The caller's tasks in that context that wait for input."""

    async def recent(self, *, ended_within: timedelta) -> Sequence[TaskRow]:
        """Every caller's tasks that have not ended, and those that ended within that time, bare messages included: what a
        starting hub has to settle, and what it has to recognise.
        """

    async def forget(self, *, ended_for: timedelta, paused_for: timedelta) -> int:
        """Drop tasks, with turns and events, that ended longer ago, or have waited longer for an answer. A bounded piece
        per call; returns how many.
        """
