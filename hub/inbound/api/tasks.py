"""The hub's own API for tasks: lists, logs, artifacts, erasure, why a worker was chosen. A2A's methods are in `a2a`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import UNSET, Raw
from quart import Quart, Response

from hub.core.hub import Hub
from hub.core.token_watch import OpenUses, TokenUse
from hub.inbound.api.answers import (
    BranchItem,
    BudgetItem,
    DecisionItem,
    Erased,
    LoggedEvent,
    LogPage,
    TaskItem,
    Tasks,
    TaskSummaries,
    TaskSummary,
    Tree,
)
from hub.inbound.api.operation import operation
from hub.inbound.api.requests import (
    ArtifactQuery,
    EraseQuery,
    EraseTaskQuery,
    LogQuery,
    Position,
    Segment,
    TaskFilter,
    TaskListQuery,
)
from hub.inbound.api.usage import cost_item, usage_items
from hub.inbound.files.downloads import DOWNLOAD, download, download_stored
from hub.inbound.middleware.audit import recorded
from hub.inbound.middleware.authentication import caller, own_scope, token
from rolecall.errors import (
    ArtifactNotFound,
    ArtifactUnreadable,
    InvalidParams,
    Overloaded,
    RangeInvalid,
    TaskNotCancelable,
    TaskNotFound,
)
from rolecall.model.a2a import Logged
from rolecall.model.command import CancelTask, Target, TaskQuery
from rolecall.model.ids import Caller, Cursor, TaskId
from rolecall.model.principal import Right
from rolecall.model.task import Branch, Excerpt, Question, StoredFile, Summary, TaskChange, TaskRow
from rolecall.model.usage import Spending, Usage, UsageSums
from rolecall.protocol.text.timestamp import timestamp

_DOWNLOAD_ERRORS = (TaskNotFound, ArtifactNotFound, RangeInvalid, ArtifactUnreadable, Overloaded)

_NO_EXCERPT = Excerpt()


def add_tasks(app: Quart, hub: Hub, uses: OpenUses) -> None:
    @app.get("/registry/tasks")
    @operation("The caller's tasks, or for operators those of all holders.")
    async def tasks(query: TaskListQuery) -> Tasks:
        if query.all_holders:
            found = await hub.page_of_workspace(caller(Right.OPERATE).workspace, _wanted(query))
        else:
            found = await hub.page(caller(), _wanted(query))
        page, excerpts, questions, usage, trees = found
        items = [
            task_item(
                row, usage.get(row.id, ()), questions.get(row.id), trees.get(row.id, ()), excerpts.get(row.id, _NO_EXCERPT)
            )
            for row in page.rows
        ]
        if query.all_holders:
            for item, row in zip(items, page.rows, strict=True):
                item.holder = row.caller.name
        return Tasks(tasks=items, total=page.total, next_cursor=page.before)

    @app.get("/registry/summaries")
    @operation("The caller's tasks whose logs have been deleted.")
    async def summaries(query: TaskFilter) -> TaskSummaries:
        page = await hub.summaries(caller(), _wanted(query))
        return TaskSummaries(summaries=[_summary(one) for one in page.summaries], next_cursor=page.before)

    @app.get("/registry/summaries/<task>")
    @operation("What is left of a task whose log has been deleted.", TaskNotFound)
    async def summary(task: Segment) -> TaskSummary:
        return _summary(await hub.summary(caller(), TaskId(task)))

    @app.delete("/registry/tasks")
    @operation(
        "Erase the tasks of a context or of a holder, or those that have ended long ago.",
        InvalidParams,
        Overloaded,
        right=Right.CALL,
    )
    async def erase_all(query: EraseQuery) -> Erased:
        if query.context_id is None and query.holder is None and query.ended_by is None:
            raise InvalidParams(
                "Name what to erase: ?context_id= a context of yours, ?ended_by= a time, or ?holder= the holder of the tasks."
            )
        name = query.holder or caller().name
        until = f", ended by {timestamp(query.ended_by)}" if query.ended_by is not None else ""
        with recorded(own_scope(), "erase", f"holder {name}, context {query.context_id or 'any'}{until}") as facts:
            owner = caller() if query.holder is None else Caller(caller(Right.OPERATE).workspace, query.holder)
            erased = await hub.erasure.all_of(owner, query.context_id, ended_by=query.ended_by)
            facts["count"] = erased.tasks
        return Erased(*erased)

    @app.delete("/registry/tasks/<task>")
    @operation("Erase a task.", TaskNotFound, right=Right.CALL)
    async def erase(task: Segment, query: EraseTaskQuery) -> Erased:
        with recorded(own_scope(), "erase", task) as facts:
            owner = await _owner(hub, task) if query.all_holders else caller()
            erased = await hub.erasure.task(owner, TaskId(task))
            facts["count"] = erased.tasks
        return Erased(*erased)

    @app.post("/registry/tasks/<task>/cancel")
    @operation("Cancel a task of any holder.", TaskNotFound, TaskNotCancelable, right=Right.OPERATE)
    async def cancel(task: Segment) -> TaskItem:
        with recorded(own_scope(), "tasks/cancel", task):
            owner = await _owner(hub, task)
            await hub.cancel(owner, CancelTask(Target(), TaskId(task), ()))
        item = task_item(await hub.task(owner, TaskId(task), Target()), ())
        item.holder = owner.name
        return item

    @app.get("/registry/tasks/<task>/events")
    @operation("A page of a task's log, as it is stored.", TaskNotFound, Overloaded)
    async def log(task: Segment, query: LogQuery) -> LogPage:
        page = await hub.log_pages.read(caller(), TaskId(task), after=Cursor(query.after), limit=query.limit)
        return LogPage(events=[_event(logged) for logged in page.events], next_after=page.next_after)

    @app.get("/registry/tasks/<task>/artifacts/<number>")
    @operation("An artifact of a task, as a file.", *_DOWNLOAD_ERRORS, answers=DOWNLOAD)
    async def artifact(task: Segment, number: Position, query: ArtifactQuery) -> Response:
        found, at = await hub.download(caller(), TaskId(task), number, query.part)
        if isinstance(found, StoredFile):
            return download_stored(found, query, hub.files, caller(), TokenUse(uses, token()))
        return download(found, query, version=f"{at}-{number}-{query.part or 0}")

    @app.get("/registry/tasks/<task>/decision")
    @operation("Why a task's worker was chosen, as long as the hub remembers it.", TaskNotFound)
    async def decision(task: Segment) -> DecisionItem:
        # The name may be the caller's alias and at the same time another task's id: the caller's meaning counts.
        found = await hub.task(caller(), TaskId(task), Target())
        chosen = hub.decisions.of(found.id)
        if chosen is None:
            raise TaskNotFound("The hub no longer has the routing decision of that task; it keeps only recent ones.")
        return DecisionItem(
            task=chosen.task,
            role=chosen.worker.role,
            worker=str(chosen.worker),
            rule=chosen.rule,
            candidates=chosen.candidates,
            failing=chosen.failing,
            at=timestamp(chosen.at),
        )

    @app.get("/registry/tasks/<task>/tree")
    @operation("The task's tree: its root, and all tasks that tasks of it have started.", TaskNotFound)
    async def tree(task: Segment) -> Tree:
        root, children = await hub.trees.tree(await hub.task(caller(), TaskId(task), Target()))
        ids = [root.id, *(child.row.id for child in children)]
        used, budgets = await hub.usage_of(ids), await hub.budgets(ids)
        excerpts = await hub.excerpts(caller(), [root, *(child.row for child in children)])
        items = [_branch_item(root, None, used, budgets, excerpts)]
        items += [_branch_item(row, branch, used, budgets, excerpts) for row, branch in children]
        return Tree(tasks=items, usage=usage_items(UsageSums(one for usage in used.values() for one in usage).sums))


async def _owner(hub: Hub, task: str) -> Caller:
    """Who in the caller's workspace has the task. Forbidden, TaskNotFound."""
    return await hub.caller_of(caller(Right.OPERATE).workspace, TaskId(task))


def _event(logged: Logged) -> LoggedEvent:
    event = logged.event
    return LoggedEvent(
        cursor=logged.cursor, kind=event.kind, state=event.state, dialect=event.dialect, document=Raw(event.body)
    )


def _wanted(query: TaskFilter) -> TaskQuery:
    return TaskQuery(query.context_id, query.role, query.state, query.since, limit=query.limit, before=query.cursor)


def _summary(kept: Summary) -> TaskSummary:
    return TaskSummary(
        id=kept.id,
        role=kept.role,
        worker=str(kept.worker) if kept.worker else None,
        context_id=kept.context,
        state=kept.state,
        created=timestamp(kept.created),
        updated=timestamp(kept.updated),
        events=kept.at,
    )


def _branch_item(
    row: TaskRow,
    branch: Branch | None,
    used: Mapping[TaskId, Sequence[Usage]],
    budgets: Mapping[TaskId, Spending],
    excerpts: Mapping[TaskId, Excerpt],
) -> BranchItem:
    deadline = branch.deadline if branch is not None else None
    return BranchItem(
        task=task_item(row, used.get(row.id, ()), excerpt=excerpts[row.id]),
        parent=branch.parent if branch is not None else None,
        deadline=timestamp(deadline) if deadline is not None else None,
        goes_on=branch is not None and branch.goes_on,
        budget=_budget(budgets[row.id]) if row.id in budgets else UNSET,
    )


def _budget(spending: Spending) -> BudgetItem:
    budget = spending.budget
    bounds_cost, bounds_tokens = budget.nanos is not None, budget.tokens is not None
    return BudgetItem(
        tokens=budget.tokens,
        cost=cost_item(budget.nanos, budget.currency) if budget.nanos is not None else None,
        spent_tokens=spending.tokens if bounds_tokens else None,
        spent_cost=cost_item(spending.nanos, budget.currency) if bounds_cost else None,
    )


def task_item(
    row: TaskRow | TaskChange,
    usage: Sequence[Usage],
    question: Question | None = None,
    tree_usage: Sequence[Usage] = (),
    excerpt: Excerpt = _NO_EXCERPT,
) -> TaskItem:
    return TaskItem(
        id=row.id,
        role=row.role,
        worker=str(row.worker) if row.worker else None,
        context_id=row.context,
        state=row.state,
        created=timestamp(row.created),
        updated=timestamp(row.updated),
        events=row.at,
        usage=usage_items(usage) if usage else UNSET,
        tree_usage=usage_items(tree_usage) if tree_usage else UNSET,
        question=UNSET if question is None else question.words,
        child=UNSET if question is None or question.child is None else question.child,
        since=UNSET if question is None else timestamp(row.updated),
        asked=excerpt.asked or UNSET,
        reason=excerpt.reason or UNSET,
        detail=excerpt.detail or UNSET,
    )
