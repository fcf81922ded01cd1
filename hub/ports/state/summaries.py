"""The summaries port: what is known of tasks whose logs have been deleted."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from rolecall.model.command import TaskQuery
from rolecall.model.ids import Caller, TaskId
from rolecall.model.task import Summary, SummaryPage


class Summaries(Protocol):
    """A summary per task that `TaskStore.forget` has deleted, if it was told to keep one. The same transaction writes it."""

    async def get(self, caller: Caller, task: TaskId) -> Summary:
        """TaskNotFound: there is none, or it is another caller's."""

    async def page(self, caller: Caller, query: TaskQuery) -> SummaryPage:
        """Latest update first. It may take long, but delays no other operation of the store; whoever calls it limits how many
        run at once. When it is cancelled it ends.
        """

    async def all_of(
        self, caller: Caller, *, context: str | None, ended_by: float | None = None, limit: int
    ) -> Sequence[TaskId]:
        """Some of the caller's; only those in `context`, and only those of tasks that had ended by `ended_by`, if these are
        given. It may take long, as `page`.
        """

    async def erase(self, caller: Caller, tasks: Sequence[TaskId]) -> int:
        """Delete these, as far as they are the caller's. How many there were."""

    async def forget(self, *, ended_for: timedelta) -> int:
        """Delete those that are older than that. Deletes a bounded number per call; returns how many."""
