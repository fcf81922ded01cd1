"""The tasks of a worker: accepts messages, finds tasks, removes old ones."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple
from uuid import uuid4

from rolecall.errors import InvalidParams, TaskEnded, TaskNotCancelable, TaskNotFound, WorkerRefused
from rolecall.model.a2a import TaskState
from rolecall.model.command import Send
from rolecall.model.ids import new_context_id, new_task_id
from rolecall.protocol.text.jsontext import dump
from worker_sdk.context import FilesWithin, LinkWithin
from worker_sdk.handlers.skills import Skills
from worker_sdk.tasks.execution import Execution, Slots
from worker_sdk.tasks.log import CAP, MAX_EVENT, TaskLog

_Key = tuple[str, str | None, str, bytes]

_CANCEL_WAIT = 5.0
"""Seconds that tasks/cancel waits for the handler to end. After that it returns the task in its current state."""


class Delivery(NamedTuple):
    """The execution that got a message, and the event that its turn begins with."""

    execution: Execution
    start: int

    @property
    def log(self) -> TaskLog:
        return self.execution.log


class TaskLimits(NamedTuple):
    """Limits for ended tasks: seconds, number, bytes. The oldest is removed first. `log`: bytes of one task's log."""

    keep: float = 3600.0
    keep_tasks: int = 10_000
    keep_bytes: int = 256 * 1024 * 1024
    log: int = CAP


class Tasks:
    """One worker's tasks, on one event loop."""

    def __init__(
        self,
        skills: Skills,
        *,
        name: str,
        concurrency: int | None,
        limits: TaskLimits,
        max_event: int = MAX_EVENT,
        monotonic: Callable[[], float] = time.monotonic,
        link: LinkWithin | None = None,
        files: FilesWithin | None = None,
    ) -> None:
        """`link`: the way to call through the hub; `files`: to its files."""
        self.boot = uuid4().hex
        self.slots = Slots(concurrency)
        self.draining = False
        self._skills = skills
        self._name = name
        self._limits = limits
        self._max_event = max_event
        self._monotonic = monotonic
        self._link = link
        self._files = files
        self._by_id: dict[str, Execution] = {}
        self._deliveries: dict[_Key, Delivery] = {}
        self._keys: dict[str, list[_Key]] = {}
        self._ended: deque[Execution] = deque()
        self._ended_bytes = 0

    def __iter__(self) -> Iterator[Execution]:
        """In the order in which they began; without those that were removed."""
        return iter(list(self._by_id.values()))

    def deliver(self, send: Send, *, idempotency_key: str = "", hub_task: str = "", remaining: float | None = None) -> Delivery:
        """Start or resume a handler. A repeated message returns its first delivery. `hub_task`: the hub's id of the task.
        `remaining`: seconds that it may take.

        WorkerRefused: nothing was done. Also TaskNotFound, TaskEnded, InvalidParams.
        """
        self.forget()
        key = _key_of(send, idempotency_key)
        known = self._deliveries.get(key)
        if known is not None:
            return known
        delivery = self._resume(send, remaining) if send.task_id else self._start(send, hub_task, remaining)
        self._deliveries[key] = delivery
        self._keys.setdefault(delivery.log.task_id, []).append(key)
        return delivery

    def get(self, task_id: str) -> TaskLog:
        return self._find(task_id).log

    async def look(self, task_id: str) -> None:
        """The hub asks whether a paused task has gone on. TaskNotFound."""
        execution = self._find(task_id)
        if execution.waits and not self.draining:
            await execution.look()

    async def cancel(self, task_id: str) -> TaskLog:
        execution = self._find(task_id)
        if execution.log.ended:
            raise TaskNotCancelable
        execution.stop(TaskState.CANCELED, "")
        try:
            async with asyncio.timeout(_CANCEL_WAIT):
                await execution.wait_ended()
        except TimeoutError:
            pass  # the handler is still cleaning up; the task becomes canceled when it ends
        return execution.log

    async def finish(self, timeout: float, reason: str) -> int:
        """Accept no new work, wait `timeout` seconds for running handlers, fail the rest. Returns how many those were, with the
        handlers that wait for their callers. The tasks of these stay as they are.
        """
        self.draining = True
        try:
            async with asyncio.timeout(timeout):
                await self.slots.idle()
        except TimeoutError:
            pass  # the rest is stopped below
        rest = [execution for execution in self._by_id.values() if not execution.log.ended]
        for execution in rest:
            if execution.waits:
                execution.leave()
            else:
                execution.stop(TaskState.FAILED, reason)
        try:
            async with asyncio.timeout(2.0):
                await asyncio.gather(*(execution.wait_ended() for execution in rest))
        except TimeoutError:
            pass  # a handler that cannot be stopped ends with the process
        return len(rest)

    def forget(self) -> None:
        """Remove ended tasks beyond the limits."""
        now = self._monotonic()
        while self._ended and (
            self._ended[0].ended_at + self._limits.keep <= now
            or len(self._ended) > self._limits.keep_tasks
            or self._ended_bytes > self._limits.keep_bytes
        ):
            execution = self._ended.popleft()
            self._ended_bytes -= execution.log.size
            del self._by_id[execution.log.task_id]
            for key in self._keys.pop(execution.log.task_id):
                del self._deliveries[key]

    def _find(self, task_id: str) -> Execution:
        self.forget()
        execution = self._by_id.get(task_id)
        if execution is None:
            raise TaskNotFound
        return execution

    def _start(self, send: Send, hub_task: str, remaining: float | None) -> Delivery:
        self._check_room()
        handler = self._skills.choose(send.target.skill, send.params["message"])
        log = TaskLog(new_task_id(), send.context_id or new_context_id(), cap=self._limits.log, max_event=self._max_event)
        execution = Execution(
            log,
            handler,
            self.slots,
            send,
            self._on_end,
            hub_task=hub_task,
            link=self._link,
            files=self._files,
            remaining=remaining,
            worker=self._name,
        )
        self.slots.take()
        self._by_id[log.task_id] = execution
        execution.start()
        return Delivery(execution, log.end)

    def _resume(self, send: Send, remaining: float | None) -> Delivery:
        execution = self._find(send.task_id or "")
        log = execution.log
        if send.context_id and send.context_id != log.context_id:
            raise InvalidParams('"message.contextId" is not the context of that task.')
        if log.ended:
            raise TaskEnded
        if not log.resting or execution.stopping:
            raise InvalidParams("The task is working and accepts no message now. Wait until it asks for input.")
        self._check_room()
        self.slots.take()
        execution.resume(send, remaining)
        return Delivery(execution, log.end)

    def _check_room(self) -> None:
        if self.draining:
            raise WorkerRefused(self._name, "it is being drained")
        if self.slots.full:
            raise WorkerRefused(self._name)

    def _on_end(self, execution: Execution) -> None:
        execution.ended_at = self._monotonic()
        self._ended.append(execution)
        self._ended_bytes += execution.log.size


def _key_of(send: Send, idempotency_key: str) -> _Key:
    """The same content under the same id, for the same task, is the same message. The id alone is not enough, because
    different callers choose "1". A forwarder for several callers distinguishes them by an idempotency key.
    """
    message = send.params["message"]
    digest = hashlib.blake2b(dump([message["parts"], message.get("metadata")]), digest_size=16).digest()
    return (send.message_id, send.task_id, idempotency_key, digest)
