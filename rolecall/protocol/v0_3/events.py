"""Parse workers' events in 0.3."""

from __future__ import annotations

from typing import Any

from rolecall.model.a2a import EventKind, JsonObject, WorkerEvent
from rolecall.model.content import Part, PartKind
from rolecall.protocol.v0_3 import VERSION
from rolecall.protocol.v0_3.parts import find_kind, write_part
from rolecall.protocol.v0_3.shape import read_state, state_name
from rolecall.protocol.v0_3.words import AGENT, text_part
from rolecall.protocol.workers.events import Malformed, WorkerEventReader

_KINDS = {kind.value: kind for kind in EventKind}


def read_result(result: Any, *, position: str | None = None) -> WorkerEvent:
    """A task, message or update: the result of a call or of one stream frame. Changes the document and keeps it."""
    if not isinstance(result, dict):
        raise Malformed("the result is not an object")
    name = result.get("kind")
    kind = _KINDS.get(name) if isinstance(name, str) else _kind_by_members(result)
    if kind is None:
        raise Malformed("the result is of no known kind")
    if kind is EventKind.TASK:
        _mend_task(result)
    return _READER.read(kind, result, position)


def read_task(result: Any) -> WorkerEvent:
    """The result of a call that can only be answered with a task."""
    return read_result(result)


def _kind_by_members(result: JsonObject) -> EventKind | None:
    """Some workers leave out the discriminator."""
    if result.get("kind") is None:
        if "artifact" in result:
            return EventKind.ARTIFACT
        if "parts" in result:
            return EventKind.MESSAGE
        if "status" in result:
            return EventKind.TASK if "id" in result else EventKind.STATUS
    return None


def _mend_task(task: JsonObject) -> None:
    """Some agents report usage in a member that A2A does not have. Move it to the metadata, where readers can find it."""
    usage = task.get("data")
    if isinstance(usage, dict) and isinstance(task.get("metadata") or {}, dict):
        task["metadata"] = {**task.pop("data"), **(task.get("metadata") or {})}


def _mend_part(part: JsonObject) -> None:
    if "kind" not in part:
        part["kind"] = find_kind(part) or "data"
    if part["kind"] == "data" and not isinstance(part.get("data"), dict):
        part.update(write_part(Part(PartKind.DATA, part.get("data"), metadata=part.get("metadata"))))


_READER = WorkerEventReader(
    VERSION,
    AGENT,
    frozenset({"user", AGENT}),
    read_state,
    state_name,
    text_part,
    _mend_part,
    marks=True,
)
