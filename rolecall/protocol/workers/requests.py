"""Requests to workers: what is said, in the dialect that the task's worker is spoken to in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from rolecall.model.a2a import Ids, JsonObject, WorkerEvent
from rolecall.model.command import Send
from rolecall.protocol.dialect import V0_3, V1_0, translated_message
from rolecall.protocol.v0_3 import calls as calls03
from rolecall.protocol.v0_3 import events as heard03
from rolecall.protocol.v1_0 import calls as calls10
from rolecall.protocol.v1_0 import events as heard10


class Calls(Protocol):
    """How a dialect names what is asked of a worker, and what it puts around it."""

    SEND: str
    STREAM: str
    GET: str
    CANCEL: str
    SUBSCRIBE: str

    def send_params(self, params: JsonObject, message: JsonObject, *, stream: bool) -> JsonObject: ...
    def foreign_params(self, message: JsonObject, metadata: JsonObject, modes: list[str], *, stream: bool) -> JsonObject: ...
    def task_params(self, ids: Ids) -> JsonObject: ...


class ReadResult(Protocol):
    def __call__(self, result: Any, *, position: str | None = None) -> WorkerEvent: ...


ReadTask = Callable[[Any], WorkerEvent]


class EventReaders(Protocol):
    def read_result(self, result: Any, *, position: str | None = None) -> WorkerEvent: ...
    def read_task(self, result: Any) -> WorkerEvent: ...


CALLS: dict[str, Calls] = {V0_3: calls03, V1_0: calls10}
_HEARD: dict[str, EventReaders] = {V0_3: heard03, V1_0: heard10}


def send_params(send: Send, ids: Ids, references: dict[str, str], *, stream: bool) -> JsonObject:
    """The caller's request under the worker's ids. A worker that cannot stream is asked not to block: the hub follows."""
    calls, native = CALLS[ids.log_dialect], send.dialect == ids.log_dialect
    said = send.params["message"]
    message: JsonObject = {**said} if native else translated_message(said, send.dialect, ids.log_dialect)
    message["messageId"] = send.message_id
    message.pop("taskId", None)
    if ids.worker_task:
        message["taskId"] = ids.worker_task
    context = ids.worker_context or send.context_id
    if context:
        message["contextId"] = context
    else:
        message.pop("contextId", None)
    if send.references:
        message["referenceTaskIds"] = [references.get(task, task) for task in send.references]
    if native:
        return calls.send_params(send.params, message, stream=stream)
    return calls.foreign_params(message, send.params.get("metadata") or {}, _modes(send.params), stream=stream)


def task_params(ids: Ids) -> JsonObject:
    return CALLS[ids.log_dialect].task_params(ids)


def readers(dialect: str) -> tuple[ReadResult, ReadTask]:
    """For the answer to a message, or one event of its stream; for an answer that can only be a task."""
    worker_event = _HEARD[dialect]
    return worker_event.read_result, worker_event.read_task


def _modes(params: JsonObject) -> list[str]:
    """In the oldest dialect they stand in the params themselves."""
    configuration = params.get("configuration")
    modes = (configuration if isinstance(configuration, dict) else params).get("acceptedOutputModes")
    return [mode for mode in modes if isinstance(mode, str)] if isinstance(modes, list) else []
