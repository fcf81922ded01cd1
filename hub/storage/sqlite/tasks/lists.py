"""The statements that list a caller's tasks."""

from __future__ import annotations

from typing import Any

from hub.storage.common.cached_task import PageMark
from hub.storage.sqlite.tasks.rows import MEMBERS
from rolecall.model.a2a import TaskState
from rolecall.model.command import TaskQuery
from rolecall.model.ids import Caller
from rolecall.model.task import COUNTED

_NEWEST_FIRST = "order by updated desc, id desc limit ?"


def list_count(caller: Caller, query: TaskQuery) -> tuple[str, list[Any]]:
    """The statement that counts a list, and its values."""
    if query.context_id is None and not query.states and query.since is None:
        where, values = where_of(caller, None, query.role)
        return f"select min(coalesce(sum(tasks), 0), {COUNTED}) from tally where {where}", values
    filters = _list_filters(caller, query)
    counts = [f"(select count(*) from (select 1 from task where {where} limit {COUNTED}))" for where, _ in filters]
    return f"select min({' + '.join(counts)}, {COUNTED})", [value for _, values in filters for value in values]


def list_page(caller: Caller, query: TaskQuery) -> tuple[str, list[Any]]:
    """The statement that reads one row more than the page. It reads as many of each state, because an index has a state's tasks
    in order, and not those of several.
    """
    pieces, found = list[str](), list[Any]()
    for where, values in _list_filters(caller, query):
        if query.before is not None:
            where += " and (updated, id) < (?, ?)"
            values.extend(PageMark.parse(query.before))
        pieces.append(f"select {MEMBERS} from task_now where {where} {_NEWEST_FIRST}")
        found += [*values, query.limit + 1]
    if len(pieces) == 1:
        return pieces[0], found
    together = " union all ".join(f"select * from ({piece})" for piece in pieces)
    return f"select * from ({together}) {_NEWEST_FIRST}", [*found, query.limit + 1]


def _list_filters(caller: Caller, query: TaskQuery) -> list[tuple[str, list[Any]]]:
    """One for each state."""
    return [_list_filter(caller, query, state) for state in query.states or (None,)]


def _list_filter(caller: Caller, query: TaskQuery, state: TaskState | None) -> tuple[str, list[Any]]:
    where, values = where_of(caller, query.context_id, query.role)
    if state in (None, TaskState.COMPLETED):
        where += " and not hidden"  # a hidden task is completed
    elif state == TaskState.SUBMITTED:
        where = where.replace("workspace =", "+workspace =") + " and idle_since is null"  # no other index but task_idle
    else:
        where += " and state not in ('completed', 'submitted')"  # needed to use the partial index
    if state is not None:
        where += " and state = ?"
        values.append(state)
    if query.since is not None:
        where += " and updated >= ?"
        values.append(query.since)
    return where, values


def where_of(caller: Caller, context: str | None, role: str | None) -> tuple[str, list[Any]]:
    """The condition for tasks of the caller, and its values. None: of any context, of any role."""
    where, values = "workspace = ? and caller = ?", list[Any](caller)
    for term, value in (("context = ? and context <> ''", context), ("role = ?", role)):  # needed to use the partial index
        if value is not None:
            where += f" and {term}"
            values.append(value)
    return where, values
