"""The tasks that a worker knows: taking messages in, finding tasks again, forgetting them."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple
from uuid import uuid4

from rolecall.errors import InvalidParams, TaskEnded, TaskNotCancelable, TaskNotFound, WorkerRefused
from rolecall.model.a2a import TaskState
from rolecall.model.command import Send
from rolecall.model.ids import new_context_id, new_task_id
from rolecall.protocol.text.jsontext import dump
from worker_sdk.handler import Handler
from worker_sdk.tasks.execution import Execution, Slots
from worker_sdk.tasks.log import CAP, TaskLog

_Key = tuple[str, str | None, str, bytes]

_CANCEL_WAIT = 5.0
"""So long an answer to tasks/cancel waits for the handler to end; then it shows the task as it stands."""


class Delivery(NamedTuple):
    """Where a message went, and the event that its turn begins with."""

    execution: Execution
    start: int

    @property
    def log(self) -> TaskLog:
        return self.execution.log


class TaskLimits(NamedTuple):
    """How long and how much of what has ended is kept. The oldest goes first."""

    keep: float = 3600.0
    keep_tasks: int = 10_000
    keep_bytes: int = 256 * 1024 * 1024
    log: int = CAP


class Tasks:
    """One worker's tasks. On one event loop."""

    def __init__(
        self,
        handler: Handler,
        *,
        name: str,
        concurrency: int | None,
        limits: TaskLimits,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.boot = uuid4().hex
        self.slots = Slots(concurrency)
        self.draining = False
        self._handler = handler
        self._name = name
        self._limits = limits
        self._monotonic = monotonic
        self._known: dict[str, Execution] = {}
        self._heard: dict[_Key, Delivery] = {}
        self._keys: dict[str, list[_Key]] = {}
        self._ended: deque[Execution] = deque()
        self._ended_bytes = 0

    def deliver(self, send: Send, *, idempotency_key: str = "") -> Delivery:
        """Start or resume a handler; a message that was delivered before is only pointed to its task.

        WorkerRefused: nothing happened. TaskNotFound, TaskEnded, InvalidParams.
        """
        self.forget()
        key = _key_of(send, idempotency_key)
        known = self._heard.get(key)
        if known is not None:
            return known
        delivery = self._resume(send) if send.task_id else self._start(send)
        self._heard[key] = delivery
        self._keys.setdefault(delivery.log.task_id, []).append(key)
        return delivery

    def get(self, task_id: str) -> TaskLog:
        return self._find(task_id).log

    async def cancel(self, task_id: str) -> TaskLog:
        execution = self._find(task_id)
        if execution.log.ended:
            raise TaskNotCancelable
        execution.stop(TaskState.CANCELED, "")
        try:
            async with asyncio.timeout(_CANCEL_WAIT):
                await execution.over()
        except TimeoutError:
            pass  # the handler cleans up; the task is canceled when it has ended
        return execution.log

    async def finish(self, patience: float, reason: str) -> int:
        """Take nothing new, let what runs end for `patience` seconds, fail the rest; returns how many that were."""
        self.draining = True
        try:
            async with asyncio.timeout(patience):
                await self.slots.idle()
        except TimeoutError:
            pass  # what is left is stopped below
        rest = [execution for execution in self._known.values() if not execution.log.ended]
        for execution in rest:
            execution.stop(TaskState.FAILED, reason)
        try:
            async with asyncio.timeout(2.0):
                await asyncio.gather(*(execution.over() for execution in rest))
        except TimeoutError:
            pass  # a handler that cannot be stopped ends with the process
        return len(rest)

    def forget(self) -> None:
        """Drop what ended too long ago, or is too much."""
        now = self._monotonic()
        while self._ended and (
            self._ended[0].ended_at + self._limits.keep <= now
            or len(self._ended) > self._limits.keep_tasks
            or self._ended_bytes > self._limits.keep_bytes
        ):
            execution = self._ended.popleft()
            self._ended_bytes -= execution.log.size
            del self._known[execution.log.task_id]
            for key in self._keys.pop(execution.log.task_id):
                del self._heard[key]

    def _find(self, task_id: str) -> Execution:
        self.forget()
        execution = self._known.get(task_id)
        if execution is None:
            raise TaskNotFound
        return execution

    def _start(self, send: Send) -> Delivery:
        self._take_slot()
        log = TaskLog(new_task_id(), send.context_id or new_context_id(), cap=self._limits.log)
        execution = Execution(log, self._handler, self.slots, send, self._on_end)
        self._known[log.task_id] = execution
        execution.start()
        return Delivery(execution, log.end)

    def _resume(self, send: Send) -> Delivery:
        execution = self._find(send.task_id or "")
        log = execution.log
        if send.context_id and send.context_id != log.context_id:
            raise InvalidParams('"message.contextId" is not the context of that task.')
        if log.ended:
            raise TaskEnded
        if not log.resting or execution.stopping:
            raise InvalidParams("The task is working and takes no message now. Wait until it asks for input.")
        self._take_slot()
        execution.resume(send)
        return Delivery(execution, log.end)

    def _take_slot(self) -> None:
        if self.draining:
            raise WorkerRefused(self._name, "it is being drained")
        if self.slots.full:
            raise WorkerRefused(self._name)
        self.slots.take()

    def _on_end(self, execution: Execution) -> None:
        execution.ended_at = self._monotonic()
        self._ended.append(execution)
        self._ended_bytes += execution.log.size


def _key_of(send: Send, idempotency_key: str) -> _Key:
    """The same words under the same id, to the same task, are the same message. An id alone proves nothing: strangers
    choose "1". Whoever forwards for several callers tells them apart with an idempotency key.
    """
    message = send.params["message"]
    digest = hashlib.blake2b(dump([message["parts"], message.get("metadata")]), digest_size=16).digest()
    return (send.message_id, send.task_id, idempotency_key, digest)
