"""A task's row, and a branch's, as columns of the SQLite engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rolecall.model.a2a import PAUSED, TaskState
from rolecall.model.ids import Caller, Cursor, TaskId, WorkerId
from rolecall.model.task import Branch, Child, TaskRow

MEMBERS = (
    "id, workspace, caller, role, worker, epoch, context, worker_task, worker_context, dialect, spoken, alias, "
    "state, last, position, size, created, updated"
)
BRANCH = "parent, root, roles, deadline, goes_on"
PAUSED_STATE = "state in ({})".format(", ".join(f"'{state}'" for state in sorted(PAUSED)))
"""In the words of the index task_paused, or SQLite does not use it."""


def row_of(members: Sequence[Any]) -> TaskRow:
    (task, workspace, caller, role, worker, epoch, context, worker_task, worker_context, *rest) = members
    dialect, log_dialect, alias, state, last, position, size, created, updated = rest
    return TaskRow(
        id=TaskId(task),
        caller=Caller(workspace, caller),
        role=role,
        worker=WorkerId.of(worker) if worker is not None else None,
        epoch=epoch,
        context=context,
        worker_task=worker_task,
        worker_context=worker_context,
        dialect=dialect,
        log_dialect=log_dialect,
        alias=alias,
        state=TaskState(state),
        at=Cursor(last),
        position=position or None,
        size=size,
        created=created,
        updated=updated,
    )


def values_of(row: TaskRow) -> tuple[Any, ...]:
    """Missing texts are stored as empty strings: see `_KIND_TEXT` in events.py."""
    worker = str(row.worker) if row.worker is not None else None
    names = (row.id, *row.caller, row.role, worker, row.epoch, row.context, row.worker_task, row.worker_context, row.dialect)
    return (*names, row.log_dialect, row.alias, str(row.state), row.at, row.position or "", row.size, row.created, row.updated)


def branch_values(branch: Branch) -> tuple[Any, ...]:
    return branch.parent, branch.root, " ".join(branch.roles), branch.deadline, branch.goes_on


def branch_of(members: Sequence[Any]) -> Branch:
    parent, root, roles, deadline, goes_on = members
    return Branch(TaskId(parent), TaskId(root), tuple(roles.split()), deadline, bool(goes_on))


def child_of(members: Sequence[Any]) -> Child:
    return Child(row_of(members[5:]), branch_of(members[:5]))
