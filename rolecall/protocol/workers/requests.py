"""Requests to workers, in the dialect of the task's worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from rolecall.model.a2a import Ids, JsonObject, WorkerEvent
from rolecall.model.command import Send
from rolecall.protocol.dialect import V0_3, V1_0, translated_message
from rolecall.protocol.v0_3 import calls as calls03
from rolecall.protocol.v0_3 import events as events03
from rolecall.protocol.v1_0 import calls as calls10
from rolecall.protocol.v1_0 import events as events10


class Calls(Protocol):
    """The method names and parameters of a dialect."""

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
_READERS: dict[str, EventReaders] = {V0_3: events03, V1_0: events10}


def send_params(send: Send, ids: Ids, references: dict[str, str], *, stream: bool) -> JsonObject:
    """The caller's request with the worker's ids. A worker that cannot stream is asked not to block, because the hub polls."""
    calls, native = CALLS[ids.log_dialect], send.dialect == ids.log_dialect
    original = send.params["message"]
    message: JsonObject = {**original} if native else translated_message(original, send.dialect, ids.log_dialect)
    message["messageId"] = send.message_id
    message.pop("taskId", None)
    if ids.worker_task:
        message["taskId"] = ids.worker_task
    message["contextId"] = ids.worker_context or ids.context
    if send.references:
        message["referenceTaskIds"] = [references.get(task, task) for task in send.references]
    if native:
        return calls.send_params(send.params, message, stream=stream)
    return calls.foreign_params(message, send.params.get("metadata") or {}, _modes(send.params), stream=stream)


def task_params(ids: Ids) -> JsonObject:
    return CALLS[ids.log_dialect].task_params(ids)


def readers(dialect: str) -> tuple[ReadResult, ReadTask]:
    """The reader for the answer to a message or one event of its stream, and the one for an answer that can only be a task."""
    events = _READERS[dialect]
    return events.read_result, events.read_task


def _modes(params: JsonObject) -> list[str]:
    """In 0.1 they are in the params themselves."""
    configuration = params.get("configuration")
    modes = (configuration if isinstance(configuration, dict) else params).get("acceptedOutputModes")
    return [mode for mode in modes if isinstance(mode, str)] if isinstance(modes, list) else []
