"""Lists of tasks, summaries and sums: two at a time, workspaces in rotation, for a limited time and as their caller waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from hub.core.relay.context import Dependencies
from hub.core.tasks.reader import OnDisconnect, TaskReader, TaskView, readable
from rolecall.errors import ClientDisconnected, ListTooSlow
from rolecall.model.a2a import PAUSED, Answer
from rolecall.model.command import ListTasks, TaskQuery
from rolecall.model.ids import Caller, TaskId
from rolecall.model.task import Excerpt, Question, Summary, SummaryPage, TaskPage
from rolecall.model.usage import Usage, UsageGroup, UsageQuery, UsageSums
from rolecall.model.value import replace

_LONGEST = 10.0
"""Seconds that one list may be read for, without the wait for its turn."""


class TaskList(NamedTuple):
    """`total`: at most COUNTED."""

    tasks: Sequence[Answer]
    total: int
    next_page: str | None


class RowList(NamedTuple):
    """`excerpts`: of each task. `questions`: what each of the paused tasks asks its caller. `usage`: what those that have used
    something have used. `tree_usage`: what the trees of roots have used, where a task below the root has used something.
    """

    page: TaskPage
    excerpts: Mapping[TaskId, Excerpt]
    questions: Mapping[TaskId, Question]
    usage: Mapping[TaskId, Sequence[Usage]]
    tree_usage: Mapping[TaskId, Sequence[Usage]]


class TaskLists:
    def __init__(self, deps: Dependencies, reader: TaskReader) -> None:
        self._tasks = deps.engine.tasks
        self._summaries = deps.engine.summaries
        self._usage = deps.engine.usage
        self._share = deps.shares.lists
        self._reader = reader

    async def rows(self, caller: Caller, query: TaskQuery) -> RowList:
        """ListTooSlow."""
        async with self._turn(caller.workspace, None):
            page = await self._tasks.page(caller, query)
            questions = {row.id: await self._reader.question(row) for row in page.rows if row.state in PAUSED}
            return await self._with_usage(page, await self._reader.excerpts(caller, page.rows), questions)

    async def rows_of_workspace(self, workspace: str, query: TaskQuery) -> RowList:
        """Of all callers in it, without excerpts and questions: what is in a task is its caller's. ListTooSlow."""
        async with self._turn(workspace, None):
            return await self._with_usage(await self._tasks.page_of_workspace(workspace, query), {}, {})

    async def _with_usage(
        self, page: TaskPage, excerpts: Mapping[TaskId, Excerpt], questions: Mapping[TaskId, Question]
    ) -> RowList:
        ids = [row.id for row in page.rows]
        usage, below = await self._usage.of_tasks(ids), await self._usage.below(ids)
        trees = {root: UsageSums([*usage.get(root, ()), *used]).sums for root, used in below.items()}
        return RowList(page, excerpts, questions, usage, trees)

    async def usage(self, query: UsageQuery) -> Sequence[UsageGroup]:
        """ListTooSlow."""
        async with self._turn(query.workspace, None):
            return await self._usage.of_days(query)

    async def summaries(self, caller: Caller, query: TaskQuery) -> SummaryPage:
        """ListTooSlow."""
        async with self._turn(caller.workspace, None):
            return await self._summaries.page(caller, query)

    async def summary(self, caller: Caller, task: TaskId) -> Summary:
        """TaskNotFound, ListTooSlow."""
        async with self._turn(caller.workspace, None):
            return await self._summaries.get(caller, task)

    async def documents(self, caller: Caller, command: ListTasks, on_disconnect: OnDisconnect | None) -> TaskList:
        """The page ends early where its logs are long. ListTooSlow, ClientDisconnected."""
        async with self._turn(caller.workspace, on_disconnect):
            page = await self._tasks.page(caller, command.query)
            count = readable(page.rows)
            if count < len(page.rows):
                page = await self._tasks.page(caller, replace(command.query, limit=count))
            view = TaskView(command.dialect, command.history_length, artifacts=command.artifacts)
            return TaskList(await self._reader.documents(caller, page.rows, view), page.total, page.before)

    @asynccontextmanager
    async def _turn(self, workspace: str, on_disconnect: OnDisconnect | None) -> AsyncIterator[None]:
        """Whatever is read within the block is cancelled when the time is over or the caller disconnects."""
        loop, gone, over = asyncio.get_running_loop(), False, False

        def disconnected() -> None:
            nonlocal gone
            if not over and not gone:
                gone = True
                bound.reschedule(loop.time())

        try:
            async with asyncio.timeout(None) as bound:
                if on_disconnect is not None:
                    on_disconnect(disconnected)
                async with self._share.slot(workspace):
                    if not gone:
                        bound.reschedule(loop.time() + _LONGEST)
                    yield
        except TimeoutError as error:
            raise ClientDisconnected if gone else ListTooSlow(_LONGEST) from error
        finally:
            over = True
