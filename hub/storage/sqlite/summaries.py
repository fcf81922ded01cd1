"""The summaries of the SQLite engine."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from hub.ports.clock import Clock
from hub.ports.shares import Share
from hub.storage.common.cached_task import PageMark
from hub.storage.sqlite.connections.readers import ListReaders
from hub.storage.sqlite.connections.writer import Writer
from rolecall.errors import TaskNotFound
from rolecall.model.a2a import TaskState
from rolecall.model.command import TaskQuery
from rolecall.model.ids import Caller, Cursor, TaskId, WorkerId, split_name
from rolecall.model.task import SUMMARY_SIZE, Summary, SummaryPage

FORGET_SUMMARIES = 200
"""How many one call of `forget` deletes, because other writes wait for it."""
_MEMBERS = "id, workspace, caller, role, worker, context, state, events, created, updated"
_KEEP = f"""
insert into summary ({_MEMBERS})
select id, workspace, caller, role, worker, context, state, last, created, updated from task_now
where key = ?1 and not hidden and updated >= ?2
returning workspace
"""
_OLD = "select id from summary where updated < ? order by updated limit ?"


def keep_summary(db: sqlite3.Connection, key: int, since: float) -> bool:
    """Keep one of the task with this key, if it changed at `since` or later. False: none is kept."""
    return db.execute(_KEEP, (key, since)).fetchone() is not None


class SqliteSummaries:
    def __init__(self, writer: Writer, lists: ListReaders, clock: Clock, disk: Share) -> None:
        self._writer = writer
        self._lists = lists
        self._clock = clock
        self._disk = disk

    async def load(self) -> None:
        """Count the bytes of those that an earlier hub has stored."""
        for workspace, count in await self._lists.rows("select workspace, count(*) from summary group by workspace"):
            self._disk.fill(workspace, count * SUMMARY_SIZE)

    async def get(self, caller: Caller, task: TaskId) -> Summary:
        sql = f"select {_MEMBERS} from summary where id = ? and workspace = ? and caller = ?"
        rows = await self._lists.rows(sql, (task, *caller))
        if not rows:
            raise TaskNotFound
        return _summary_of(rows[0])

    async def page(self, caller: Caller, query: TaskQuery) -> SummaryPage:
        where, values = _filter(caller, query)
        sql = f"select {_MEMBERS} from summary where {where} order by updated desc, id desc limit ?"
        found = [_summary_of(members) for members in await self._lists.rows(sql, [*values, query.limit + 1])]
        page = found[: query.limit]
        more = len(found) > len(page) > 0
        return SummaryPage(page, str(PageMark(page[-1].updated, page[-1].id)) if more else None)

    async def all_of(
        self, caller: Caller, *, context: str | None, ended_by: float | None = None, limit: int
    ) -> Sequence[TaskId]:
        where, values = _filter(caller, TaskQuery(context))
        if ended_by is not None:
            where += " and updated <= ?"
            values.append(ended_by)
        return [
            TaskId(task)
            for (task,) in await self._lists.rows(f"select id from summary where {where} limit ?", [*values, limit])
        ]

    async def erase(self, caller: Caller, tasks: Sequence[TaskId]) -> int:
        return await self._delete("id = ? and workspace = ? and caller = ?", [(task, *caller) for task in tasks])

    async def forget(self, *, ended_for: timedelta) -> int:
        before = self._clock.wall() - ended_for.total_seconds()
        old = await self._lists.rows(_OLD, (before, FORGET_SUMMARIES))
        return await self._delete("id = ?", old) if old else 0

    async def _delete(self, where: str, which: Sequence[Sequence[Any]]) -> int:
        def write(db: sqlite3.Connection) -> list[str]:
            """The workspace of each that was there."""
            sql = f"delete from summary where {where} returning workspace"
            return [workspace for values in which for (workspace,) in db.execute(sql, values).fetchall()]

        def publish(gone: list[str]) -> None:
            for workspace in gone:
                self._disk.give_back(workspace, SUMMARY_SIZE)

        gone = await self._writer.submit(write, publish, short=True)
        return len(gone)


def _filter(caller: Caller, query: TaskQuery) -> tuple[str, list[Any]]:
    where, values = "workspace = ? and caller = ?", list[Any](caller)
    for term, value in (("context = ?", query.context_id), ("role = ?", query.role), ("updated >= ?", query.since)):
        if value is not None:
            where += f" and {term}"
            values.append(value)
    if query.states:
        where += f" and state in ({', '.join('?' * len(query.states))})"
        values += [str(state) for state in query.states]
    if query.before is not None:
        where += " and (updated, id) < (?, ?)"
        values.extend(PageMark.parse(query.before))
    return where, values


def _summary_of(members: Sequence[Any]) -> Summary:
    task, workspace, caller, role, worker, context, state, events, created, updated = members
    worker_id = WorkerId(role, split_name(worker)[1] or "") if worker is not None else None
    return Summary(
        id=TaskId(task),
        caller=Caller(workspace, caller),
        role=role,
        worker=worker_id,
        context=context,
        state=TaskState(state),
        at=Cursor(events),
        created=created,
        updated=updated,
    )
