"""The summaries of the memory engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

from hub.ports.clock import Clock
from hub.ports.shares import Share
from hub.storage.common.cached_task import PageMark
from rolecall.errors import TaskNotFound
from rolecall.model.command import TaskQuery
from rolecall.model.ids import Caller, TaskId
from rolecall.model.task import SUMMARY_SIZE, Summary, SummaryPage, TaskRow

_FORGET_LIMIT = 200


class MemorySummaries:
    def __init__(self, clock: Clock, disk: Share) -> None:
        self._clock = clock
        self._disk = disk
        self._kept: dict[TaskId, Summary] = {}

    def keep(self, row: TaskRow) -> None:
        self._disk.fill(row.caller.workspace, SUMMARY_SIZE)
        self._kept[row.id] = Summary(
            id=row.id,
            caller=row.caller,
            role=row.role,
            worker=row.worker,
            context=row.context,
            state=row.state,
            at=row.at,
            created=row.created,
            updated=row.updated,
        )

    async def get(self, caller: Caller, task: TaskId) -> Summary:
        found = self._kept.get(task)
        if found is None or found.caller != caller:
            raise TaskNotFound
        return found

    async def page(self, caller: Caller, query: TaskQuery) -> SummaryPage:
        found = [summary for summary in self._of(caller, query.context_id) if _matches(summary, query)]
        found.sort(key=lambda summary: (summary.updated, summary.id), reverse=True)
        page = found[: query.limit]
        more = len(found) > len(page) > 0
        return SummaryPage(page, str(PageMark(page[-1].updated, page[-1].id)) if more else None)

    async def all_of(
        self, caller: Caller, *, context: str | None, ended_by: float | None = None, limit: int
    ) -> Sequence[TaskId]:
        found = [one.id for one in self._of(caller, context) if ended_by is None or one.updated <= ended_by]
        return found[:limit]

    async def erase(self, caller: Caller, tasks: Sequence[TaskId]) -> int:
        return self._delete([task for task in tasks if task in self._kept and self._kept[task].caller == caller])

    async def forget(self, *, ended_for: timedelta) -> int:
        before = self._clock.wall() - ended_for.total_seconds()
        return self._delete([summary.id for summary in self._kept.values() if summary.updated < before][:_FORGET_LIMIT])

    def _delete(self, tasks: Sequence[TaskId]) -> int:
        for task in tasks:
            self._disk.give_back(self._kept.pop(task).caller.workspace, SUMMARY_SIZE)
        return len(tasks)

    def _of(self, caller: Caller, context: str | None) -> Iterator[Summary]:
        for summary in self._kept.values():
            if summary.caller == caller and context in (None, summary.context):
                yield summary


def _matches(summary: Summary, query: TaskQuery) -> bool:
    return (
        query.role in (None, summary.role)
        and (not query.states or summary.state in query.states)
        and summary.updated >= (query.since or 0)
        and (query.before is None or (summary.updated, summary.id) < PageMark.parse(query.before))
    )
