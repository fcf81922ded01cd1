"""What a worker says, in 0.3: read, checked as far as anything later relies on it, and mended where that is safe."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from hub.model.a2a import EventKind, Heard, JsonObject, TaskState
from hub.wire.v03 import VERSION

# Spellings that are in use for the specified states.
_STATES = {state.value: state for state in TaskState} | {
    "cancelled": TaskState.CANCELED,
    "pending": TaskState.SUBMITTED,
    "running": TaskState.WORKING,
}
_KINDS = {kind.value: kind for kind in EventKind}
_MOST_ITEMS = 100_000
_LONGEST_ID = 1024


class Malformed(ValueError):
    """This is not an A2A event; the text says why, without quoting it."""


def read_result(result: Any, *, position: str | None = None) -> Heard:
    """A task, message or update, as the result of a call or of one stream frame. Takes over the document."""
    if not isinstance(result, dict):
        raise Malformed("the result is not an object")
    kind = _kind(result)
    state: TaskState | None = None
    if kind is EventKind.TASK:
        state = _check_task(result)
    elif kind is EventKind.STATUS:
        state = _check_status(result)
    elif kind is EventKind.ARTIFACT:
        _check_artifact(result.get("artifact"))
        _check_common(result)
    else:
        _check_message(result, "message")
    result["kind"] = kind.value
    task = result.get("id" if kind is EventKind.TASK else "taskId") or ""
    return Heard(kind, state, result, VERSION, task, result.get("contextId") or "", position)


def _kind(result: JsonObject) -> EventKind:
    said = result.get("kind")
    if said is None:
        # Careless workers leave the discriminator out; the members tell.
        if "artifact" in result:
            return EventKind.ARTIFACT
        if "parts" in result:
            return EventKind.MESSAGE
        if "status" in result:
            return EventKind.TASK if "id" in result else EventKind.STATUS
    kind = _KINDS.get(said) if isinstance(said, str) else None
    if kind is None:
        raise Malformed("the result is of no known kind")
    return kind


def _check_task(task: JsonObject) -> TaskState:
    if not isinstance(task.get("id"), str) or not task["id"] or len(task["id"]) > _LONGEST_ID:
        raise Malformed("a task without id")
    state = _check_status(task)
    for name in ("history", "artifacts"):
        items = task.get(name)
        if items is None:
            task.pop(name, None)
            continue
        if not isinstance(items, list) or len(items) > _MOST_ITEMS:
            raise Malformed(f"task.{name} is not a list")
        for item in items:
            _check_message(item, "task.history") if name == "history" else _check_artifact(item)
    return state


def _check_status(holder: JsonObject) -> TaskState:
    status = holder.get("status")
    if not isinstance(status, dict):
        raise Malformed("no status object")
    state = _STATES.get(status.get("state") or "", TaskState.UNKNOWN) if isinstance(status.get("state"), str) else None
    if state is None:
        raise Malformed("no status.state")
    status["state"] = state.value
    if not isinstance(status.get("timestamp"), str):
        status.pop("timestamp", None)
    if status.get("message") is None:
        status.pop("message", None)
    else:
        _check_message(status["message"], "status.message")
    _check_common(holder)
    return state


def _check_artifact(artifact: Any) -> None:
    if not isinstance(artifact, dict):
        raise Malformed("no artifact object")
    if not isinstance(artifact.get("artifactId"), str):
        artifact["artifactId"] = str(uuid4())
    _check_parts(artifact, "artifact")
    _check_common(artifact)


def _check_message(message: Any, where: str) -> None:
    if not isinstance(message, dict):
        raise Malformed(f"{where} is not an object")
    message["kind"] = "message"
    if message.get("role") not in ("user", "agent"):
        message["role"] = "agent"
    if not isinstance(message.get("messageId"), str):
        message["messageId"] = str(uuid4())
    _check_parts(message, where)
    _check_common(message)


def _check_parts(holder: JsonObject, where: str) -> None:
    parts = holder.get("parts")
    if not isinstance(parts, list) or len(parts) > _MOST_ITEMS:
        raise Malformed(f"{where}.parts is not a list")
    for part in parts:
        if not isinstance(part, dict):
            raise Malformed(f"{where}.parts holds something that is not an object")
        if "kind" not in part:
            part["kind"] = part.pop("type", None) or next((k for k in ("text", "file", "data") if k in part), "data")


def _check_common(holder: JsonObject) -> None:
    """Members that readers rely on: gone where they are null, refused where they are of a wrong type."""
    metadata = holder.get("metadata")
    if metadata is None:
        holder.pop("metadata", None)
    elif not isinstance(metadata, dict):
        raise Malformed("metadata is not an object")
    for name in ("taskId", "contextId"):
        value = holder.get(name)
        if value is None:
            holder.pop(name, None)
        elif not isinstance(value, str) or len(value) > _LONGEST_ID:
            raise Malformed(f"{name} is not a string of at most {_LONGEST_ID} characters")
