"""A2A's operations on a hub that keeps an audit log: it notes of which task each call is."""

from __future__ import annotations

from collections.abc import Callable

from hub.core.tasks.stream import TaskStream
from hub.inbound.a2a.operations import OperationCall, Operations
from hub.inbound.middleware.audit import note_task
from rolecall.errors import HubError
from rolecall.model.a2a import Answer
from rolecall.model.ids import TaskId


class RecordedOperations(Operations):
    async def answer(self, call: OperationCall) -> bytes:
        try:
            return await super().answer(call)
        except HubError as error:
            note_task(call, error.task)
            raise

    async def open(self, call: OperationCall, admitted: Callable[[TaskId], None] | None = None) -> TaskStream:
        try:
            task_stream = await super().open(call, admitted)
        except HubError as error:
            note_task(call, error.task)
            raise
        note_task(call, task_stream.task)
        return task_stream

    async def _body(self, call: OperationCall, answer: Answer, *, beside: int = 0) -> bytes:
        note_task(call, answer.task)
        return await super()._body(call, answer, beside=beside)
