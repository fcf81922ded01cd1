"""The task rows of the memory engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta

from hub.ports.clock import Clock
from hub.ports.shares import Share
from hub.storage.common.cached_task import CachedTask, PageMark, change_of, merged
from hub.storage.memory.files import MemoryFiles
from hub.storage.memory.pushes import MemoryPushes
from hub.storage.memory.summaries import MemorySummaries
from hub.storage.memory.task_changes import MemoryChanges
from hub.storage.memory.usage import MemoryUsage
from rolecall.errors import StoreUnavailable, TaskNotFound
from rolecall.model.a2a import PAUSED, TaskState
from rolecall.model.call import CallName, StoredCall
from rolecall.model.command import TaskQuery
from rolecall.model.ids import START, Caller, Cursor, FileId, TaskId, WorkerId
from rolecall.model.push import SealedConfig
from rolecall.model.task import COUNTED, ROW_SIZE, Branch, Child, Conversation, Holder, TaskPage, TaskRow, Turn
from rolecall.model.usage import Budget
from rolecall.model.value import replace

FORGET_LIMIT = 200
_PIECE = 500
"""Rows of a list that are looked at together."""


class MemoryTasks:
    def __init__(
        self,
        tasks: dict[TaskId, CachedTask],
        branches: dict[TaskId, Branch],
        clock: Clock,
        pushes: MemoryPushes,
        files: MemoryFiles,
        usage: MemoryUsage,
        summaries: MemorySummaries,
        disk: Share,
        changes: MemoryChanges,
    ) -> None:
        self._tasks = tasks
        self._branches = branches
        self._clock = clock
        self._pushes = pushes
        self._files = files
        self._usage = usage
        self._summaries = summaries
        self._disk = disk
        self._changes = changes
        self._calls: dict[bytes, StoredCall] = {}
        self._names: dict[TaskId, list[bytes]] = {}

    async def admit(
        self,
        row: TaskRow,
        turn: Turn,
        *,
        names: Sequence[CallName] = (),
        remembered: timedelta = timedelta(),
        push: SealedConfig | None = None,
        branch: Branch | None = None,
        files: Sequence[FileId] = (),
        budget: Budget | None = None,
    ) -> bool:
        self._disk.check(row.caller.workspace)
        if row.id in self._tasks:
            raise StoreUnavailable
        if any(self._call(name.digest, remembered) for name in names):
            return False
        self._files.check(row.caller, files)
        parent = branch.parent if branch is not None else None
        self._tasks[row.id] = CachedTask(row, [turn], parent=parent, whole=True)
        self._files.bind(row.id, files)
        self._disk.fill(row.caller.workspace, ROW_SIZE + len(turn.params))
        self._add_names(row, names, START)
        if push is not None:
            await self._pushes.set(row.caller, push, limit=1)
        if branch is not None:
            self._branches[row.id] = branch
            self._usage.spend_as_parent(row.id, branch.parent)
        if budget is not None:
            self._usage.add_budget(row.id, budget)
        self._changes.add(change_of(row, parent, self._changes.next_revision(), state=row.state))
        return True

    async def find_call(self, name: bytes, *, remembered: timedelta) -> StoredCall | None:
        return self._call(name, remembered)

    async def add_turn(
        self,
        task: TaskId,
        turn: Turn,
        *,
        names: Sequence[CallName] = (),
        remembered: timedelta = timedelta(),
        files: Sequence[FileId] = (),
    ) -> bool:
        cached = self._known(task)
        if any(self._call(name.digest, remembered) for name in names):
            return False
        self._files.check(cached.row.caller, files)
        self._files.bind(task, files)
        self._add_names(cached.row, names, turn.after)
        cached.turns = [*(cached.turns or ()), turn]
        self._disk.fill(cached.workspace, len(turn.params))
        cached.touch(self._clock.wall())
        return True

    async def drop_turn(self, task: TaskId, turn: Turn) -> None:
        cached = self._tasks.get(task)
        turns = cached.turns if cached is not None else None
        if (
            cached is not None
            and turns
            and len(turns) > 1
            and (turns[-1].after, turns[-1].message_id) == (turn.after, turn.message_id)
        ):
            cached.turns = turns[:-1]
            self._disk.give_back(cached.workspace, len(turns[-1].params))
            self._drop_names(task, lambda call: call.began == turn.after)

    async def assign(self, task: TaskId, worker: WorkerId, epoch: int, log_dialect: str) -> None:
        cached = self._known(task)
        cached.replace_row(replace(cached.row, worker=worker, epoch=epoch, log_dialect=log_dialect))

    async def discard(self, task: TaskId) -> None:
        cached = self._tasks.get(task)
        self._remove(task, self._clock.wall())
        if cached is not None:
            revision = self._changes.next_revision()
            gone = change_of(cached.row, cached.parent, revision, state=TaskState.SUBMITTED, gone=True)
            self._changes.discard(gone)

    async def forget_discarded(self, caller: Caller, *, context: str | None) -> None:
        self._changes.forget_discarded(caller, context)

    async def all_of(
        self, caller: Caller, *, context: str | None, admitted_by: float, ended_by: float | None = None, limit: int
    ) -> Sequence[TaskRow]:
        rows = [cached.row for cached in self._tasks.values() if cached.row.caller == caller]
        found = [row for row in rows if context in (None, row.context) and row.created <= admitted_by]
        return [row for row in found if ended_by is None or (row.ended and row.updated <= ended_by)][:limit]

    async def erase(self, task: TaskId) -> bool:
        self._changes.forget((task,))
        self._remove(task)
        return False

    async def get(self, caller: Caller, task: TaskId) -> TaskRow:
        return self._known(task).seen_by(caller)

    async def caller_of(self, workspace: str, task: TaskId) -> Caller:
        caller = self._known(task).row.caller
        if caller.workspace != workspace:
            raise TaskNotFound
        return (await self.get(caller, task)).caller

    async def turns(self, task: TaskId) -> Sequence[Turn]:
        cached = self._tasks.get(task)
        return tuple(cached.turns or ()) if cached is not None else ()

    async def first_turns(self, tasks: Sequence[TaskId], *, largest: int) -> Mapping[TaskId, Turn]:
        found = {task: turns[0] for task in tasks if (turns := await self.turns(task))}
        return {task: turn for task, turn in found.items() if len(turn.params) <= largest}

    async def page(self, caller: Caller, query: TaskQuery) -> TaskPage:
        since = query.since or 0
        rows = []
        for number, row in enumerate(list(self._rows(caller, query.context_id, query.role))):
            if number % _PIECE == 0:
                await asyncio.sleep(0)  # others run meanwhile
            if (not query.states or row.state in query.states) and row.updated >= since:
                rows.append(row)
        rows.sort(key=lambda row: (row.updated, row.id), reverse=True)
        total = min(len(rows), COUNTED)
        if query.before is not None:
            mark = PageMark.parse(query.before)
            rows = [row for row in rows if (row.updated, row.id) < mark]
        page = rows[: query.limit]
        more = len(rows) > len(page) > 0
        return TaskPage(page, total, str(PageMark(page[-1].updated, page[-1].id)) if more else None)

    async def page_of_workspace(self, workspace: str, query: TaskQuery) -> TaskPage:
        callers = {cached.row.caller for cached in self._tasks.values() if cached.workspace == workspace}
        return merged([await self.page(caller, query) for caller in callers], query.limit)

    async def conversation(self, caller: Caller, context: str, role: str | None) -> Conversation | None:
        rows = [row for row in self._rows(caller, context, role) if row.worker is not None]
        if not rows or rows[-1].worker is None:
            return None
        return Conversation(rows[-1].worker, rows[-1].worker_context)

    async def paused(self, caller: Caller, context: str, role: str | None) -> Sequence[TaskId]:
        return [row.id for row in self._rows(caller, context, role) if row.state in PAUSED]

    async def holders(self) -> Sequence[Holder]:
        return sorted({_holder(row, row.worker) for row in self._paused_rows() if row.worker is not None})

    async def paused_at(self, holder: Holder, *, after: TaskId | None, limit: int) -> Sequence[TaskRow]:
        rows = [row for row in self._paused_rows() if row.worker is not None and _holder(row, row.worker) == holder]
        return sorted((row for row in rows if after is None or row.id > after), key=lambda row: row.id)[:limit]

    async def branch_of(self, task: TaskId) -> Branch | None:
        return self._branches.get(task)

    async def tree(self, root: TaskId, *, limit: int) -> Sequence[Child]:
        found = [Child(self._tasks[task].row, branch) for task, branch in self._branches.items() if branch.root == root]
        return found[:limit]

    async def open_children(self) -> Sequence[Child]:
        children = (Child(self._tasks[task].row, branch) for task, branch in self._branches.items())
        return [child for child in children if not child.row.ended]

    async def paused_task(self, workspace: str, task: TaskId) -> TaskRow | None:
        cached = self._tasks.get(task)
        row = cached.row if cached is not None and cached.workspace == workspace else None
        return row if row is not None and row.state in PAUSED else None

    async def paused_parents(self) -> Sequence[TaskRow]:
        parents = {branch.parent for branch in self._branches.values()}
        return [row for row in self._paused_rows() if row.id in parents]

    async def unfinished(self) -> Sequence[TaskRow]:
        return [cached.row for cached in self._tasks.values() if not cached.closed]

    async def forget(self, *, ended_for: timedelta, paused_for: timedelta, summaries_for: timedelta = timedelta()) -> int:
        now = self._clock.wall()
        ended, paused = now - ended_for.total_seconds(), now - paused_for.total_seconds()
        old = [
            task
            for task, cached in self._tasks.items()
            if (
                self._idle_since(cached) < ended
                if cached.closed
                else cached.row.state in PAUSED and cached.row.updated < paused
            )
        ]
        self._changes.forget(old[:FORGET_LIMIT])
        for task in old[:FORGET_LIMIT]:
            cached = self._tasks[task]
            if not cached.hidden and cached.row.updated >= now - summaries_for.total_seconds():
                self._summaries.keep(cached.row)
            self._remove(task)
        return len(old[:FORGET_LIMIT]) + self._changes.forget_old(ended, FORGET_LIMIT)

    def _remove(self, task: TaskId, files_unused_since: float = 0.0) -> None:
        if task in self._tasks:
            self._delete(task, files_unused_since)
        self._pushes.forget(task)
        self._drop_names(task)

    def _delete(self, task: TaskId, files_unused_since: float) -> None:
        self._files.unbind(task, files_unused_since)
        cached = self._tasks.pop(task)
        self._branches.pop(task, None)
        self._usage.forget_task(task)
        turns = sum(len(turn.params) for turn in cached.turns or ())
        self._disk.give_back(cached.workspace, ROW_SIZE + cached.logged + turns)
        cached.close()

    def _paused_rows(self) -> Iterator[TaskRow]:
        return (cached.row for cached in self._tasks.values() if cached.row.state in PAUSED)

    async def forget_calls(self, *, remembered: timedelta) -> int:
        free = {call.task for name, call in self._calls.items() if self._call(name, remembered) is None}
        piece = list(free)[:FORGET_LIMIT]
        for task in piece:
            self._drop_names(task, lambda call: not call.content)
        return len(piece)

    def _idle_since(self, cached: CachedTask) -> float:
        """The end of the task, or the last delivery attempt if that is later."""
        return max(cached.row.updated, self._pushes.last_attempt(cached.row.id))

    def _call(self, name: bytes, remembered: timedelta) -> StoredCall | None:
        call = self._calls.get(name)
        if call is None:
            return None
        cached = self._tasks[call.task]
        long_ended = cached.closed and cached.row.updated <= self._clock.wall() - remembered.total_seconds()
        return None if long_ended and not call.content else call

    def _add_names(self, row: TaskRow, names: Sequence[CallName], began: Cursor) -> None:
        for name in names:
            self._calls[name.digest] = StoredCall(row.id, row.role, began, name.content)
            self._names.setdefault(row.id, []).append(name.digest)

    def _drop_names(self, task: TaskId, which: Callable[[StoredCall], bool] = lambda call: True) -> None:
        kept = []
        for name in self._names.pop(task, ()):
            call = self._calls.get(name)
            if call is None or call.task != task:
                continue  # the name was free, and is a later task's by now
            if which(call):
                del self._calls[name]
            else:
                kept.append(name)
        if kept:
            self._names[task] = kept

    def _known(self, task: TaskId) -> CachedTask:
        cached = self._tasks.get(task)
        if cached is None:
            raise TaskNotFound
        return cached

    def _rows(self, caller: Caller, context: str | None, role: str | None) -> Iterator[TaskRow]:
        """In the order of admission."""
        for cached in self._tasks.values():
            row = cached.row
            if cached.hidden or row.caller != caller:
                continue
            if context in (None, row.context) and role in (None, row.role):
                yield row


def _holder(row: TaskRow, worker: WorkerId) -> Holder:
    return Holder(row.caller.workspace, worker, row.epoch)
