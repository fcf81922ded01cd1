"""The task store port: a row per task, and the caller's messages to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Protocol

from rolecall.model.call import CallName, StoredCall
from rolecall.model.command import TaskQuery
from rolecall.model.ids import Caller, FileId, TaskId, WorkerId
from rolecall.model.push import SealedConfig
from rolecall.model.task import Branch, Child, Conversation, Holder, TaskPage, TaskRow, Turn
from rolecall.model.usage import Budget


class TaskStore(Protocol):
    """A row per task. It is never older than the task's log."""

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
        """Store a new task with its first message, the names of this call, the push config that came with it, its place in a
        tree, the files that it has, and its own budget; durable on return. A child spends from its parent's budgets too.
        False: an earlier call has one of the names, and nothing was stored. A name that the caller chose lasts as long as its
        task; another one is free when the task has ended `remembered` ago. FileNotFound, and nothing was stored: a file is
        not there, is not complete, or is not the caller's.
        """

    async def find_call(self, name: bytes, *, remembered: timedelta) -> StoredCall | None:
        """The call that has the name with this digest, a bare message included. None: the name is free."""

    async def add_turn(
        self,
        task: TaskId,
        turn: Turn,
        *,
        names: Sequence[CallName] = (),
        remembered: timedelta = timedelta(),
        files: Sequence[FileId] = (),
    ) -> bool:
        """Store a further message of the caller, the names of this call, and the files that the task has from now on; durable
        on return. Changes the task's `updated`, unless the task has ended. False, and FileNotFound, as from `admit`.
        """

    async def drop_turn(self, task: TaskId, turn: Turn) -> None:
        """Remove a message that was refused to its caller, with its names; durable on return. No effect unless it is the
        task's last, by its `after` and its id, and never on the first one. The task keeps its files.
        """

    async def assign(self, task: TaskId, worker: WorkerId, epoch: int, log_dialect: str) -> None:
        """Assign the task's call to this worker, in that dialect; durable on return."""

    async def discard(self, task: TaskId) -> None:
        """Remove a task that no worker has got and no caller has seen, with its names. Its files can be sent again. That it is
        gone is remembered.
        """

    async def get(self, caller: Caller, task: TaskId) -> TaskRow:
        """TaskNotFound: unknown, of another caller, or answered by a bare message."""

    async def caller_of(self, workspace: str, task: TaskId) -> Caller:
        """Whose task it is, in that workspace. TaskNotFound: as `get`."""

    async def turns(self, task: TaskId) -> Sequence[Turn]:
        """In the order of their arrival; the first is the one of `admit`."""

    async def first_turns(self, tasks: Sequence[TaskId], *, largest: int) -> Mapping[TaskId, Turn]:
        """The messages that these tasks began with, as far as they have no more bytes than that, which is at most 64 KiB. Whose
        tasks they are was checked. It may take long, and ends when it is cancelled, as `page`.
        """

    async def page(self, caller: Caller, query: TaskQuery) -> TaskPage:
        """Latest update first. It may take long, but delays no other operation of the store; whoever calls it limits how many
        run at once. When it is cancelled it ends.
        """

    async def page_of_workspace(self, workspace: str, query: TaskQuery) -> TaskPage:
        """`page`, of all callers in it together. It reads as many rows of each of them."""

    async def conversation(self, caller: Caller, context: str, role: str | None) -> Conversation | None:
        """The worker that holds that context's newest task; only tasks of `role` if it is given."""

    async def paused(self, caller: Caller, context: str, role: str | None) -> Sequence[TaskId]:
        """The caller's tasks in that context that wait for input."""

    async def holders(self) -> Sequence[Holder]:
        """The workers of all workspaces that hold paused tasks. The cost grows with their number, not with that of tasks."""

    async def paused_at(self, holder: Holder, *, after: TaskId | None, limit: int) -> Sequence[TaskRow]:
        """A piece of the tasks that are paused there, of all callers, in the order of their ids."""

    async def branch_of(self, task: TaskId) -> Branch | None:
        """None: no other task has started it, or it is unknown."""

    async def tree(self, root: TaskId, *, limit: int) -> Sequence[Child]:
        """All that the tasks of a tree have started, in the order of admission; without the root itself."""

    async def open_children(self) -> Sequence[Child]:
        """Those of all callers that have not ended."""

    async def paused_task(self, workspace: str, task: TaskId) -> TaskRow | None:
        """None: it is not paused, or not in the workspace."""

    async def paused_parents(self) -> Sequence[TaskRow]:
        """The paused tasks of all callers that have started others."""

    async def unfinished(self) -> Sequence[TaskRow]:
        """All callers' tasks that have not ended, in the order of admission: a starting hub continues them."""

    async def all_of(
        self, caller: Caller, *, context: str | None, admitted_by: float, ended_by: float | None = None, limit: int
    ) -> Sequence[TaskRow]:
        """A piece of the caller's tasks that were admitted until that time of the wall clock, also of those that were answered
        by a bare message; only those in `context`, and only those that had ended by `ended_by`, if these are given.
        """

    async def erase(self, task: TaskId) -> bool:
        """Delete a task that has ended, whoever has it: turns, names, events, push configs, what these are owed, dead letters.
        From the first call on it is unknown. Deletes a bounded piece per call; True: there is more of it. `forget` deletes what
        a hub that was killed has left.
        """

    async def forget_discarded(self, caller: Caller, *, context: str | None) -> None:
        """Nothing is left of the discarded tasks of that caller; only of those in `context` if it is given."""

    async def forget(self, *, ended_for: timedelta, paused_for: timedelta, summaries_for: timedelta = timedelta()) -> int:
        """Delete tasks, with turns, names and events, that ended longer ago, or have been paused longer; and what is left of
        those that were discarded longer ago. Deletes a bounded number per call; returns how many. Of those that changed less
        than `summaries_for` ago, a summary is kept, unless they were answered by a bare message.
        """

    async def forget_calls(self, *, remembered: timedelta) -> int:
        """Delete the names that are free because their task ended so long ago. Goes through a bounded number of tasks per call;
        returns how many.
        """
