"""The hub's own API for tasks: lists, and why a worker was chosen. A2A's methods are in `a2a`."""

from __future__ import annotations

from quart import Quart, Response, request

from hub.core.hub import Hub
from hub.inbound.api.application import reply, whole_number
from hub.inbound.api.operation_doc import documented
from hub.inbound.api.shapes import DecisionItem, TaskFilter, TaskItem, Tasks
from hub.inbound.middleware.authentication import caller
from rolecall.errors import InvalidParams, TaskNotFound
from rolecall.model.a2a import TaskState
from rolecall.model.command import Target, TaskQuery
from rolecall.model.ids import TaskId
from rolecall.model.task import TaskRow
from rolecall.protocol.text.timestamp import timestamp

_MAX_PAGE = 100


def add_tasks(app: Quart, hub: Hub) -> None:
    @app.get("/registry/tasks")
    @documented("The caller's tasks.", {200: Tasks}, InvalidParams, query=TaskFilter)
    async def tasks() -> Response:
        page = await hub.page(caller(), _query())
        items = [_item(row) for row in page.rows]
        found: Tasks = {"tasks": items, "total": page.total, "next_cursor": page.before}
        return reply(found)

    @app.get("/registry/tasks/<task>/decision")
    @documented("Why a task's worker was chosen, as long as the hub remembers it.", {200: DecisionItem}, TaskNotFound)
    async def decision(task: str) -> Response:
        # The name may be the caller's alias and at the same time another task's id: the caller's meaning counts.
        found = await hub.task(caller(), TaskId(task), Target())
        chosen = hub.decisions.of(found.id)
        if chosen is None:
            raise TaskNotFound("The hub no longer has the routing decision of that task; it keeps only recent ones.")
        document: DecisionItem = {
            "task": chosen.task,
            "role": chosen.worker.role,
            "worker": str(chosen.worker),
            "rule": chosen.rule,
            "candidates": chosen.candidates,
            "at": timestamp(chosen.at),
        }
        return reply(document)


def _query() -> TaskQuery:
    args = request.args
    limit = whole_number(args.get("limit", "50"), "limit", 1, _MAX_PAGE)
    try:
        state = TaskState(args["state"]) if "state" in args else None
    except ValueError as error:
        raise InvalidParams(f'"state" must be one of {", ".join(TaskState)}.') from error
    return TaskQuery(args.get("context_id"), args.get("role"), state, limit=limit, before=args.get("cursor") or None)


def _item(row: TaskRow) -> TaskItem:
    return {
        "id": row.id,
        "role": row.role,
        "worker": str(row.worker) if row.worker else None,
        "context_id": row.context,
        "state": row.state,
        "created": timestamp(row.created),
        "updated": timestamp(row.updated),
        "events": row.at,
    }
