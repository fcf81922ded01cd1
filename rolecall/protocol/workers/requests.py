"""Requests to workers, in the dialect of the task's worker."""

from __future__ import annotations

from rolecall.model.a2a import Ids, JsonObject
from rolecall.model.command import Send
from rolecall.protocol.dialects import worker_side
from rolecall.protocol.translation import translated_message


def send_params(send: Send, ids: Ids, references: dict[str, str], *, stream: bool) -> JsonObject:
    """The caller's request with the worker's ids. A worker that cannot stream is asked not to block, because the hub polls."""
    calls, native = worker_side(ids.log_dialect).calls, send.dialect == ids.log_dialect
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
    return worker_side(ids.log_dialect).calls.task_params(ids)


def _modes(params: JsonObject) -> list[str]:
    """In 0.1 they are in the params themselves."""
    configuration = params.get("configuration")
    modes = (configuration if isinstance(configuration, dict) else params).get("acceptedOutputModes")
    return [mode for mode in modes if isinstance(mode, str)] if isinstance(modes, list) else []
