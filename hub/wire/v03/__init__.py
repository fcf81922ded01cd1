"""A2A 0.3 as spoken over JSON-RPC: requests of callers, requests to workers. Lenient in, strict out."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from hub.errors import InvalidParams
from hub.model.a2a import Ids, JsonObject
from hub.model.command import CancelTask, GetTask, Send, Subscribe, Target
from hub.model.ids import Cursor, TaskId, is_instance, split_name
from hub.wire import jsonrpc

VERSION = "0.3"
_PART_KINDS = ("text", "file", "data")
_LONGEST_WAIT = 300


# --- what a caller says


def read_send(params: JsonObject, target: Target, *, trace: str | None = None, key: str | None = None) -> Send:
    """Takes over `params` and mends in place what careless callers leave out."""
    message = params.get("message")
    if not isinstance(message, dict):
        raise InvalidParams('"params.message" must be an object.')
    _mend_message(message)
    configuration = _object(params, "configuration", "params.configuration")
    if "pushNotificationConfig" in configuration:
        raise InvalidParams('"configuration.pushNotificationConfig": push notifications are not supported here yet.')
    blocking = configuration.get("blocking", True)
    if not isinstance(blocking, bool):
        raise InvalidParams('"configuration.blocking" must be true or false.')
    metadata = (_object(message, "metadata", "message.metadata"), _object(params, "metadata", "metadata"))
    return Send(
        target=_named_target(target, *metadata),
        params=params,
        dialect=VERSION,
        message_id=message["messageId"],
        task_id=TaskId(message["taskId"]) if message.get("taskId") else None,
        context_id=message.get("contextId") or None,
        references=tuple(message.get("referenceTaskIds") or ()),
        blocking=blocking,
        history_length=_history_length(configuration),
        wait=_wait_seconds(*metadata),
        key=key,
        trace=trace,
    )


def read_get(params: JsonObject, target: Target) -> GetTask:
    return GetTask(target, read_task_id(params), VERSION, _history_length(params))


def read_cancel(params: JsonObject, target: Target) -> CancelTask:
    return CancelTask(target, read_task_id(params), VERSION)


def read_subscribe(params: JsonObject, target: Target, after: Cursor | None) -> Subscribe:
    return Subscribe(target, read_task_id(params), VERSION, after)


def read_task_id(params: JsonObject) -> TaskId:
    """`id`, and the other spellings that are in use; two that differ are an error."""
    said = [params[name] for name in ("id", "taskId", "task_id") if name in params]
    name = params.get("name")
    if isinstance(name, str) and name.startswith("tasks/"):
        said.append(name.removeprefix("tasks/"))
    if not said:
        raise InvalidParams('"params.id" must name a task.')
    if not all(isinstance(value, str) and 0 < len(value) <= 256 for value in said):
        raise InvalidParams('"params.id" must be a string of 1 to 256 characters.')
    if len(set(said)) > 1:
        raise InvalidParams('"params.id" and its other spellings name different tasks.')
    return TaskId(said[0])


def _named_target(target: Target, *metadata: JsonObject) -> Target:
    role, instance = target.role, target.instance
    skill = target.skill
    for said in metadata:
        if role is None and said.get("role") is not None:
            role, instance = _role_name(said["role"])
        if skill is None:
            skill = said.get("skill", said.get("skillId"))
    if skill is not None and not isinstance(skill, str):
        raise InvalidParams('"metadata.skill" must be a string.')
    return Target(target.path_role, target.path_instance, role, instance, skill)


def _wait_seconds(*metadata: JsonObject) -> float:
    value: Any = next((said["waitSeconds"] for said in metadata if said.get("waitSeconds") is not None), 0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LONGEST_WAIT:
        raise InvalidParams(f'"metadata.waitSeconds" must be a number from 0 to {_LONGEST_WAIT}.')
    return float(value)


def _role_name(value: Any) -> tuple[str, str | None]:
    if not isinstance(value, str) or not value or len(value) > 200:
        raise InvalidParams('"metadata.role" must be a role, or role:instance.')
    role, instance = split_name(value)
    if instance is not None and not is_instance(instance):
        raise InvalidParams('"metadata.role" names an instance that cannot exist.')
    return role, instance


def _mend_message(message: JsonObject) -> None:
    message["kind"] = "message"
    message.setdefault("role", "user")
    if message["role"] not in ("user", "agent"):
        raise InvalidParams('"message.role" must be "user" or "agent".')
    if message.get("messageId") is None:
        message["messageId"] = str(uuid4())
    for name in ("messageId", "taskId", "contextId"):
        value = message.get(name)
        if value is not None and (not isinstance(value, str) or len(value) > 256):
            raise InvalidParams(f'"message.{name}" must be a string of at most 256 characters.')
        if value is None:
            message.pop(name, None)
    if not message["messageId"]:
        raise InvalidParams('"message.messageId" must not be empty.')
    references = message.get("referenceTaskIds")
    if references is not None and not (isinstance(references, list) and all(isinstance(r, str) for r in references)):
        raise InvalidParams('"message.referenceTaskIds" must be a list of strings.')
    parts = message.get("parts")
    if not isinstance(parts, list) or not parts:
        raise InvalidParams('"message.parts" must be a list with at least one part.')
    for at, part in enumerate(parts):
        _mend_part(part, f"message.parts[{at}]")


def _mend_part(part: Any, where: str) -> None:
    if not isinstance(part, dict):
        raise InvalidParams(f'"{where}" must be an object.')
    kind = part.get("kind")
    if kind is None:
        kind = part.pop("type", None) or next((name for name in _PART_KINDS if name in part), None)
        if kind in _PART_KINDS and kind not in part and "content" in part:
            part[kind] = part.pop("content")
        part["kind"] = kind
    if kind not in _PART_KINDS:
        raise InvalidParams(f'"{where}.kind" must be text, file or data.')
    if not isinstance(part.get(kind), str if kind == "text" else dict):
        raise InvalidParams(f'"{where}.{kind}" must be {"a string" if kind == "text" else "an object"}.')


def _object(holder: JsonObject, name: str, where: str) -> JsonObject:
    value = holder.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidParams(f'"{where}" must be an object.')
    return value


def _history_length(holder: JsonObject) -> int | None:
    value = holder.get("historyLength")
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InvalidParams('"historyLength" must be a whole number, 0 or more.')
    return value


# --- what a worker is told


def write_send(send: Send, ids: Ids, references: dict[str, str], *, stream: bool) -> bytes:
    """The caller's request under the worker's ids. A worker that cannot stream is asked not to block: the hub follows."""
    message: JsonObject = {**send.params["message"]}
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
    params = {**send.params, "message": message}
    if not stream:
        params["configuration"] = {**(send.params.get("configuration") or {}), "blocking": False}
    return jsonrpc.write_request(ids.task, "message/stream" if stream else "message/send", params)


def write_get(ids: Ids) -> bytes:
    return jsonrpc.write_request(ids.task, "tasks/get", {"id": ids.worker_task})


def write_cancel(ids: Ids) -> bytes:
    return jsonrpc.write_request(ids.task, "tasks/cancel", {"id": ids.worker_task})


def write_subscribe(ids: Ids) -> bytes:
    return jsonrpc.write_request(ids.task, "tasks/resubscribe", {"id": ids.worker_task})
