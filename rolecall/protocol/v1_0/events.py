"""Parse workers' events in 1.0."""

from __future__ import annotations

from typing import Any

from rolecall.model.a2a import EventKind, JsonObject, WorkerEvent
from rolecall.protocol.v1_0 import VERSION
from rolecall.protocol.v1_0.shape import contents_of, read_state, state_name
from rolecall.protocol.v1_0.words import AGENT, text_part
from rolecall.protocol.workers.events import Malformed, WorkerEventReader

_MEMBERS = {
    "task": EventKind.TASK,
    "message": EventKind.MESSAGE,
    "statusUpdate": EventKind.STATUS,
    "artifactUpdate": EventKind.ARTIFACT,
}


def read_result(result: Any, *, position: str | None = None) -> WorkerEvent:
    """An object whose one member names the kind. Changes the document and keeps it."""
    if not isinstance(result, dict):
        raise Malformed("the result is not an object")
    present = [name for name in _MEMBERS if result.get(name) is not None]
    if not present and "status" in result and "id" in result:
        return read_task(result)  # a task that was not wrapped
    if len(present) != 1 or not isinstance(result[present[0]], dict):
        raise Malformed("the result is not one of task, message, statusUpdate, artifactUpdate")
    return _READER.read(_MEMBERS[present[0]], result[present[0]], position)


def read_task(result: Any) -> WorkerEvent:
    """The result of a call that can only be answered with a task: a bare task."""
    if isinstance(result, dict) and isinstance(result.get("task"), dict) and "status" not in result:
        result = result["task"]
    if not isinstance(result, dict):
        raise Malformed("the result is not an object")
    return _READER.read(EventKind.TASK, result, None)


def _check_part(part: JsonObject) -> None:
    if len(contents_of(part)) != 1:
        raise Malformed("a part without exactly one content")


_READER = WorkerEventReader(
    VERSION,
    AGENT,
    frozenset({"ROLE_USER", AGENT}),
    read_state,
    state_name,
    text_part,
    _check_part,
    omits=True,
)
