"""Tasks that tasks have started: who may start one, how far a tree may grow, and what the end of a task ends below it."""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from hub.core.relay.cancel import cancel, end
from hub.core.relay.context import Dependencies
from hub.core.relay.relays import Relays
from hub.core.relay.transitions import Trigger
from hub.core.supervisor import Supervisor
from rolecall.errors import (
    BudgetSpent,
    CallerGone,
    ChainTooLong,
    DeadlineBefore,
    DeadlineOfCall,
    HubError,
    LeaseUnknown,
    ParentOver,
    RoleInChain,
    StoreUnavailable,
    TaskNotCancelable,
    TaskNotFound,
    TreeTooLarge,
)
from rolecall.model.command import ParentCall
from rolecall.model.ids import Caller, TaskId, WorkerId
from rolecall.model.principal import LOCAL, Principal
from rolecall.model.task import Branch, Child, TaskRow
from rolecall.model.worker import Registration

log = logging.getLogger(__name__)

_TRY_AGAIN = 0.1
_LOOK_EVERY = 1.0
_SHOWN = 1_000
"""Tasks of a tree that are shown."""


class TreeLimits(NamedTuple):
    """`depth`: levels below the root. `calls`: tasks below the root."""

    depth: int = 8
    calls: int = 200


TREE_LIMITS = TreeLimits()


class _Parent(NamedTuple):
    """A task that has not ended and has started others, and the lease that it runs under."""

    caller: Caller
    role: str
    worker: WorkerId | None
    epoch: int
    children: dict[TaskId, Branch]


class Trees:
    """`may_call`: whether a caller still has the right to make calls."""

    def __init__(
        self,
        deps: Dependencies,
        relays: Relays,
        supervisor: Supervisor,
        limits: TreeLimits,
        may_call: Callable[[Caller], bool],
    ) -> None:
        self._deps = deps
        self._tasks = deps.engine.tasks
        self._relays = relays
        self._supervisor = supervisor
        self._limits = limits
        self._may_call = may_call
        self._parents: dict[TaskId, _Parent] = {}
        self._branches: dict[TaskId, Branch] = {}
        """Of the children that have not ended."""
        self._deadlines: dict[TaskId, tuple[Caller, float]] = {}
        """Of those that have one, on the wall clock."""
        self._admitting: Counter[TaskId] = Counter()
        """How many children are being stored, by the root of their tree."""
        self.on_child_end: Callable[[TaskId], None] = lambda parent: None
        """Called with the parent when a child has ended."""
        self.on_resume: Callable[[TaskId], None] = lambda task: None
        """Called when the worker of a paused task reports that it goes on."""
        relays.on_end, relays.due_of = self.ended, self.due_of

    # --- a call from within a task

    def caller_of(self, holder: Principal, call: ParentCall) -> Caller:
        """In whose name the worker calls: the caller of the task that it works on. LeaseUnknown, ParentOver, CallerGone."""
        self._check_lease(holder, call)
        parent = self._running(call.task)
        if (
            parent is None
            or parent.caller.workspace != holder.workspace
            or (parent.worker, parent.epoch) != (call.worker, call.epoch)
        ):
            raise ParentOver
        if not self._may_call(parent.caller):
            raise CallerGone
        if call.resumed:
            self.on_resume(call.task)
        return parent.caller

    async def recall(self, holder: Principal, call: ParentCall) -> None:
        """Take up a task of that worker that is paused, and has started no other: only the store has it. LeaseUnknown."""
        self._check_lease(holder, call)
        if self._running(call.task) is not None or not await self._kept(holder.workspace, call):
            return
        # It may have ended while it was read. Whatever ends it from here on is noticed.
        if not await self._kept(holder.workspace, call) and self._relays.of(call.task) is None:
            self._parents.pop(call.task, None)

    async def _kept(self, workspace: str, call: ParentCall) -> bool:
        """Keep the task, if it is paused at that worker."""
        row = await self._tasks.paused_task(workspace, call.task)
        if row is None or (row.worker, row.epoch) != (call.worker, call.epoch):
            return False
        self.keep_paused(row)
        return True

    def _check_lease(self, holder: Principal, call: ParentCall) -> None:
        lease = self._deps.engine.registry.get(holder.workspace, call.worker)
        if (
            lease is None
            or (holder != LOCAL and lease.owner != holder.name)
            or lease.epoch != call.epoch
            or not hmac.compare_digest(lease.secret.encode(), call.secret.encode())
        ):
            raise LeaseUnknown

    async def check_child(self, call: ParentCall, task: TaskId) -> None:
        """A worker has to do with the children of its own task only. TaskNotFound."""
        if not await self.is_child(task, call.task):
            raise TaskNotFound

    async def grow(self, call: ParentCall, role: str) -> Branch:
        """The place of a new child. To be followed by `began` or `refused`. ParentOver, ChainTooLong, RoleInChain,
        TreeTooLarge, BudgetSpent, DeadlineBefore.
        """
        parent, above = self._running(call.task), await self._tasks.branch_of(call.task)
        if parent is None:
            raise ParentOver
        roles = (*(above.roles if above is not None else ()), parent.role)
        if len(roles) > self._limits.depth:
            raise ChainTooLong((*roles, role), self._limits.depth)
        if role in roles and not call.again:
            raise RoleInChain((*roles, role))
        root, now = above.root if above is not None else call.task, self._deps.clock.wall()
        self._admitting[root] += 1
        try:
            known = await self._tasks.tree(root, limit=self._limits.calls)
            if len(known) + self._admitting[root] > self._limits.calls:
                raise TreeTooLarge((*roles, role), self._limits.calls)
            for spending in await self._deps.engine.usage.spendings(call.task):
                if spending.spent:
                    raise BudgetSpent((*roles, role), spending.task, spending.spent, spending.figures)
            deadline = _earliest(
                above.deadline if above is not None else None, now + call.within if call.within is not None else None
            )
            if deadline is not None and deadline <= now:
                raise DeadlineBefore
        except BaseException:
            self.refused(root)
            raise
        return Branch(call.task, root, roles, deadline, call.goes_on)

    def refused(self, root: TaskId) -> None:
        """A place was found, and nothing was stored."""
        self._admitted(root)

    def began(self, row: TaskRow, branch: Branch) -> None:
        """It is stored. If its parent has ended meanwhile, it ends too."""
        self._admitted(branch.root)
        self._keep(self._running(branch.parent), row, branch)

    def _admitted(self, root: TaskId) -> None:
        self._admitting[root] -= 1
        if not self._admitting[root]:
            del self._admitting[root]

    # --- deadlines

    def due(self, branch: Branch) -> float | None:
        """When a child must be done, on the monotonic clock: at its own deadline, and with its parent unless it goes on."""
        clock = self._deps.clock
        own = clock.monotonic() + branch.deadline - clock.wall() if branch.deadline is not None else None
        parent = self._relays.of(branch.parent) if not branch.goes_on else None
        return _earliest(own, parent.done_by if parent is not None and not parent.rests else None)

    def due_of(self, task: TaskId) -> float | None:
        branch = self._branches.get(task)
        return self.due(branch) if branch is not None else None

    async def watch(self) -> None:
        """Run forever: end the children that are paused at their deadline. Others have a relay that sees to it."""
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            now = self._deps.clock.wall()
            for task, (caller, deadline) in list(self._deadlines.items()):
                relay = self._relays.of(task)
                if deadline < now and (relay is None or relay.rests):
                    await self._end_late(caller, task)

    async def _end_late(self, caller: Caller, task: TaskId) -> None:
        with suppress(TaskNotFound, StoreUnavailable):  # it is looked at again
            row = await self._tasks.get(caller, task)
            relay = self._relays.open(row, await self._tasks.turns(task))
            relay.post(Trigger.OVERDUE, DeadlineOfCall())

    # --- the end of a task

    def ended(self, task: TaskId) -> None:
        """A task has ended, in whatever way: what it started ends too, unless it was declared to go on."""
        branch = self._branches.pop(task, None)
        if branch is not None and branch.deadline is not None:
            self._deadlines.pop(task, None)
        if branch is not None and (parent := self._parents.get(branch.parent)) is not None:
            parent.children.pop(task, None)
            self.on_child_end(branch.parent)
        ended = self._parents.pop(task, None)
        if ended is not None:
            for child, below in ended.children.items():
                self._lose_parent(ended.caller, child, below)

    def _lose_parent(self, caller: Caller, child: TaskId, branch: Branch) -> None:
        if not branch.goes_on:
            self._supervisor.run_once(f"ending {child}, whose parent has ended", self._end(caller, child))

    async def _end(self, caller: Caller, child: TaskId) -> None:
        while True:
            try:
                await self._end_once(await self._tasks.get(caller, child))
                return
            except (TaskNotFound, TaskNotCancelable):
                return  # it has ended
            except StoreUnavailable:
                await asyncio.sleep(_TRY_AGAIN)

    async def _end_once(self, row: TaskRow) -> None:
        """TaskNotFound, TaskNotCancelable, StoreUnavailable."""
        if row.ended:
            return
        try:
            await cancel(self._deps, self._relays, row)
        except (TaskNotFound, TaskNotCancelable, StoreUnavailable):
            raise
        except HubError as error:
            log.info(
                "a child is ended without its worker", extra={"event": "child_ended", "task": row.id, "why": error.message}
            )
            await end(self._deps, self._relays, row)

    # --- others

    def holds(self, task: TaskId) -> bool:
        """It is a child, or has started others."""
        return task in self._branches or task in self._parents

    def parent_of(self, child: TaskId) -> TaskId | None:
        """Of a child that has not ended."""
        branch = self._branches.get(child)
        return branch.parent if branch is not None else None

    def caller_of_parent(self, task: TaskId) -> Caller | None:
        """None: it has ended, or started no other."""
        parent = self._parents.get(task)
        return parent.caller if parent is not None else None

    async def is_child(self, task: TaskId, parent: TaskId) -> bool:
        branch = self._branches.get(task) or await self._tasks.branch_of(task)
        return branch is not None and branch.parent == parent

    def keep_paused(self, row: TaskRow) -> None:
        """A paused task that has started others, under an earlier hub."""
        self._parents.setdefault(row.id, _Parent(row.caller, row.role, row.worker, row.epoch, {}))

    def assigned(self, task: TaskId, registration: Registration) -> None:
        """A paused task is held under another lease of its worker."""
        parent = self._parents.get(task)
        if parent is not None:
            self._parents[task] = parent._replace(worker=registration.worker, epoch=registration.epoch)

    async def settle(self) -> None:
        """Take up the trees that an earlier hub left, after its tasks. A child whose parent has ended meanwhile ends."""
        for row, branch in await self._tasks.open_children():
            self._keep(self._running(branch.parent) or await self._paused(row.caller, branch.parent), row, branch)
            if (relay := self._relays.of(row.id)) is not None:
                relay.due = self.due(branch)

    async def tree(self, row: TaskRow) -> tuple[TaskRow, Sequence[Child]]:
        """The root of the tree, and all below it. Where the root has been deleted, the task itself is in its place."""
        branch, root = await self._tasks.branch_of(row.id), row
        if branch is not None:
            with suppress(TaskNotFound):
                root = await self._tasks.get(row.caller, branch.root)
        below = await self._tasks.tree(branch.root if branch is not None else row.id, limit=_SHOWN)
        return root, [child for child in below if child.row.id != root.id]

    # --- details

    def _running(self, task: TaskId) -> _Parent | None:
        relay, known = self._relays.of(task), self._parents.get(task)
        if relay is not None and relay.log_writer.ended:
            return None  # `ended` comes a moment later
        if known is not None:
            return known
        if relay is None or relay.over:
            return None
        epoch = relay.registration.epoch if relay.registration is not None else relay.row.epoch
        return _Parent(relay.row.caller, relay.row.role, relay.worker, epoch, {})

    async def _paused(self, caller: Caller, task: TaskId) -> _Parent | None:
        try:
            row = await self._tasks.get(caller, task)
        except TaskNotFound:
            return None
        return None if row.ended else _Parent(caller, row.role, row.worker, row.epoch, {})

    def _keep(self, parent: _Parent | None, row: TaskRow, branch: Branch) -> None:
        """`parent` None: it has ended."""
        self._branches[row.id] = branch
        if branch.deadline is not None:
            self._deadlines[row.id] = row.caller, branch.deadline
        if parent is None:
            self._lose_parent(row.caller, row.id, branch)
        else:
            self._parents.setdefault(branch.parent, parent).children[row.id] = branch


def _earliest(*times: float | None) -> float | None:
    return min((deadline for deadline in times if deadline is not None), default=None)
