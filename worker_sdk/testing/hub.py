"""The hub of a test: what a handler calls in its task goes to other workers of the test, in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from rolecall import errors
from rolecall.model.a2a import JsonObject
from rolecall.model.command import Target
from rolecall.model.ids import TaskId, new_task_id
from rolecall.model.usage import Budget, Spending
from rolecall.protocol import jsonrpc, sse
from rolecall.protocol.faults import fault_of
from rolecall.protocol.text.jsontext import parse
from rolecall.protocol.v0_3 import requests as v03
from worker_sdk.calling.http import HubLink, StreamedAnswer, rpc_error
from worker_sdk.testing.files import TestFiles

if TYPE_CHECKING:
    from worker_sdk.files.file import File
    from worker_sdk.tasks.execution import Execution
    from worker_sdk.tasks.log import TaskLog
    from worker_sdk.tasks.task_table import Delivery, Tasks
    from worker_sdk.worker import Worker

_IDLE = 60.0


@dataclass(frozen=True, slots=True)
class Known:
    """A task of the test. `roles`: those above it and its own. `budget`: the one that it was called with."""

    tasks: Tasks
    execution: Execution
    roles: tuple[str, ...]
    parent: Known | None = None
    budget: Budget | None = None

    @property
    def log(self) -> TaskLog:
        return self.execution.log

    @property
    def chain(self) -> list[Known]:
        """The task, and those above it."""
        return [self] if self.parent is None else [self, *self.parent.chain]


class TestHub:
    """`roles`: the workers that can be called."""

    __test__ = False

    def __init__(self, roles: Mapping[str, Tasks]) -> None:
        self._roles = roles
        self._known: dict[str, Known] = {}
        """By their own ids, and by those that this hub gave them."""
        self._jobs: set[asyncio.Task[None]] = set()
        self._files: dict[str, File] = {}

    def files_of(self, worker: Worker) -> TestFiles:
        """The files of the test, as that worker sees them."""
        return TestFiles(self._files, worker.file_threshold)

    def link_within(self, task: str, *words: str, headers: Mapping[str, str]) -> HubLink:
        return _Link(self, self._known[task], words, headers)

    def deliver(
        self,
        tasks: Tasks,
        role: str,
        params: JsonObject,
        parent: Known | None = None,
        *,
        trace: str | None = None,
        within: float | None = None,
    ) -> Delivery:
        """Start a task, or answer one."""
        send = v03.read_send(params, Target(), trace=trace)
        hub_task = new_task_id()
        delivery = tasks.deliver(send, hub_task=hub_task, remaining=within)
        if send.task_id is None:
            known = Known(tasks, delivery.execution, (*(parent.roles if parent is not None else ()), role), parent, send.budget)
            self._known[hub_task] = self._known[delivery.log.task_id] = known
        return delivery

    async def look(self, task: str) -> None:
        """Those that ask for this task go on, if it has."""
        known = self._known.get(task)
        while known is not None and (known := known.parent) is not None:
            await known.tasks.look(known.log.task_id)

    def call(self, parent: Known, role: str, params: JsonObject, words: tuple[str, ...], trace: str | None) -> Delivery:
        """A call that a handler makes. RoleUnknown, RoleInChain, BudgetSpent."""
        tasks = self._roles.get(role)
        if tasks is None:
            raise errors.RoleUnknown(role, sorted(self._roles))
        if params["message"].get("taskId") is None and role in parent.roles and "again" not in words:
            raise errors.RoleInChain((*parent.roles, role))
        if params["message"].get("taskId") is None:
            for spending in self._spendings(parent):
                if spending.spent:
                    raise errors.BudgetSpent((*parent.roles, role), spending.task, spending.spent, spending.figures)
        delivery = self.deliver(tasks, role, params, parent, trace=trace, within=_within(parent, words))
        if "goes-on" not in words:
            self._run(self._end_with(parent, tasks, delivery.log))
        return delivery

    def _spendings(self, task: Known) -> Iterator[Spending]:
        """Of the budgets that the task spends from."""
        everybody = {id(known): known for known in self._known.values()}.values()
        for owner in task.chain:
            if owner.budget is not None:
                spending = Spending(TaskId(owner.log.task_id), owner.budget)
                for known in everybody:
                    if any(one is owner for one in known.chain):
                        for usage in known.execution.used:
                            spending = spending.plus(usage)
                yield spending

    def child(self, parent: Known, task: Any) -> Known:
        """TaskNotFound."""
        known = self._known.get(task)
        if known is None or known.parent is not parent:
            raise errors.TaskNotFound
        return known

    async def close(self) -> None:
        for job in self._jobs:
            job.cancel()
        await asyncio.gather(*self._jobs, return_exceptions=True)

    async def _end_with(self, parent: Known, tasks: Tasks, log: TaskLog) -> None:
        await parent.execution.wait_ended()
        if not log.ended:
            await tasks.cancel(log.task_id)

    def _run(self, job: Any) -> None:
        task = asyncio.get_running_loop().create_task(job, name="a child of the test")
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)


class _Link(HubLink):
    """The hub as one task sees it."""

    def __init__(self, hub: TestHub, parent: Known, words: tuple[str, ...], headers: Mapping[str, str]) -> None:
        super().__init__("http://hub.test")
        self._hub = hub
        self._parent = parent
        self._words = words
        self._trace = headers.get("traceparent")

    async def call(self, path: str, method: str, params: JsonObject, *, timeout: float | None) -> Any:
        try:
            known = self._hub.child(self._parent, params.get("id"))
            if method == "tasks/cancel":
                await known.tasks.cancel(known.log.task_id)
            elif method != "tasks/get":
                raise errors.UnsupportedOperation(f"{method} is for tests with a hub.")
            if "resumed" in self._words:
                return None
            return parse(known.log.snapshot())
        except errors.HubError as error:
            raise _refused(error) from None

    @asynccontextmanager
    async def stream(
        self, path: str, method: str, params: JsonObject, *, last_event_id: str | None = None
    ) -> AsyncIterator[StreamedAnswer]:
        try:
            if method == "tasks/resubscribe":
                log = self._hub.child(self._parent, params.get("id")).log
                start = int(last_event_id) if last_event_id else log.end
            else:
                role = unquote(path.strip("/").removeprefix("agents/"))
                delivery = self._hub.call(self._parent, role, params, self._words, self._trace)
                log, start = delivery.log, delivery.start
        except errors.HubError as error:
            raise _refused(error) from None
        yield StreamedAnswer(_frames(log, start), log.task_id)


def _within(parent: Known, words: tuple[str, ...]) -> float | None:
    """The seconds of a child: never more than its parent has."""
    named = [float(word.removeprefix("within=")) for word in words if word.startswith("within=")]
    remaining = parent.execution.remaining
    return min([*named, *([remaining] if remaining is not None else [])], default=None)


async def _frames(log: TaskLog, start: int) -> AsyncIterator[bytes]:
    yield _frame(start, log.snapshot(upto=start))
    reader = log.follow(start)
    try:
        while True:
            batch = await reader.batch(_IDLE)
            if batch is None:
                return
            for logged in batch:
                yield _frame(logged.cursor, logged.event.body)
    finally:
        reader.close()


def _frame(cursor: int, document: bytes) -> bytes:
    return b"id: %d\n" % cursor + sse.write_frame(jsonrpc.write_result(b'"1"', document))


def _refused(error: errors.HubError) -> Exception:
    fault = fault_of(error)
    return rpc_error({"code": fault.code, "message": fault.message, "data": fault.data}, fault.status)
