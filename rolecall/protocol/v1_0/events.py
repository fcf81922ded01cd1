"""What a worker says in 1.0."""

from __future__ import annotations

from typing import Any

from rolecall.model.a2a import EventKind, JsonObject, TaskState, WorkerEvent
from rolecall.protocol.v1_0 import VERSION
from rolecall.protocol.v1_0.shape import read_state, state_name
from rolecall.protocol.workers.events import Malformed, WorkerEventReader

_MEMBERS = {
    "task": EventKind.TASK,
    "message": EventKind.MESSAGE,
    "statusUpdate": EventKind.STATUS,
    "artifactUpdate": EventKind.ARTIFACT,
}
_CONTENTS = ("text", "raw", "url", "data")


def read_result(result: Any, *, position: str | None = None) -> WorkerEvent:
    """An object with one member, which tells what it is. Takes over the document."""
    if not isinstance(result, dict):
        raise Malformed("the result is not an object")
    said = [name for name in _MEMBERS if result.get(name) is not None]
    if not said and "status" in result and "id" in result:
        return read_task(result)  # a task that was not wrapped
    if len(said) != 1 or not isinstance(result[said[0]], dict):
        raise Malformed("the result is not one of task, message, statusUpdate, artifactUpdate")
    return _READER.read(_MEMBERS[said[0]], result[said[0]], position)


def read_task(result: Any) -> WorkerEvent:
    """The result of a call that can only be answered with a task, which stands there bare."""
    if isinstance(result, dict) and isinstance(result.get("task"), dict) and "status" not in result:
        result = result["task"]
    if not isinstance(result, dict):
        raise Malformed("the result is not an object")
    return _READER.read(EventKind.TASK, result, None)


def _state(name: str) -> TaskState:
    return read_state(name)


def _mark(kind: str, document: JsonObject) -> None:
    document.pop("kind", None)


def _mend_part(part: JsonObject) -> None:
    said = [name for name in _CONTENTS if name in part and (name == "data" or part[name] is not None)]
    if len(said) != 1:
        raise Malformed("a part without exactly one content")


_READER = WorkerEventReader(
    VERSION, "ROLE_AGENT", frozenset({"ROLE_USER", "ROLE_AGENT"}), _state, state_name, _mark, _mend_part, omits=True
)
