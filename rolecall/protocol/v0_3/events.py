"""What a worker says in 0.3."""

from __future__ import annotations

from typing import Any

from rolecall.model.a2a import EventKind, JsonObject, TaskState, WorkerEvent
from rolecall.model.content import Part, PartKind
from rolecall.protocol.v0_3 import VERSION
from rolecall.protocol.v0_3.parts import write_part
from rolecall.protocol.workers.events import Malformed, WorkerEventReader

# Spellings that are in use for the specified states.
_STATES = {state.value: state for state in TaskState} | {
    "cancelled": TaskState.CANCELED,
    "pending": TaskState.SUBMITTED,
    "running": TaskState.WORKING,
}
_NAMES = {state: state.value for state in TaskState}
_KINDS = {kind.value: kind for kind in EventKind}


def read_result(result: Any, *, position: str | None = None) -> WorkerEvent:
    """A task, message or update, as the result of a call or of one stream frame. Takes over the document."""
    if not isinstance(result, dict):
        raise Malformed("the result is not an object")
    kind = _kind(result)
    if kind is EventKind.TASK:
        _mend_task(result)
    return _READER.read(kind, result, position)


def read_task(result: Any) -> WorkerEvent:
    """The result of a call that can only be answered with a task."""
    return read_result(result)


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


def _mend_task(task: JsonObject) -> None:
    """Some agents put what a task has used into a member that A2A does not have. Metadata is where readers may look."""
    used = task.get("data")
    if isinstance(used, dict) and isinstance(task.get("metadata") or {}, dict):
        task["metadata"] = {**task.pop("data"), **(task.get("metadata") or {})}


def _mark(kind: str, document: JsonObject) -> None:
    document["kind"] = kind


def _mend_part(part: JsonObject) -> None:
    if "kind" not in part:
        part["kind"] = part.pop("type", None) or next((k for k in ("text", "file", "data") if k in part), "data")
    if part["kind"] == "data" and not isinstance(part.get("data"), dict):
        part.update(write_part(Part(PartKind.DATA, part.get("data"), metadata=part.get("metadata"))))


_READER = WorkerEventReader(
    VERSION,
    "agent",
    frozenset({"user", "agent"}),
    lambda name: _STATES.get(name, TaskState.UNKNOWN),
    lambda state: _NAMES[state],
    _mark,
    _mend_part,
)
