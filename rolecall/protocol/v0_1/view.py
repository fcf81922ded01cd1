"""A task as callers in 0.1 see it: under their own name, with numbered artifacts, and with its states as its history."""

from __future__ import annotations

from collections.abc import Sequence

from rolecall.model.a2a import EventKind, JsonObject
from rolecall.model.content import ArtifactUpdate, Content, Message, Status, Task
from rolecall.model.value import replace
from rolecall.protocol.v0_1.shape import write, write_status, write_stream


class NumberedStream:
    """The events of one stream. An artifact has a number instead of an id; the stream keeps these numbers."""

    def __init__(self, alias: str) -> None:
        self._alias = alias
        self._numbers: dict[str, int] = {}

    def write(self, content: Content) -> JsonObject:
        content = _renamed(content, self._alias)
        if isinstance(content, Task):
            for artifact in content.artifacts:
                self._numbers.setdefault(artifact.artifact_id, len(self._numbers))
        if isinstance(content, ArtifactUpdate):
            number = self._numbers.setdefault(content.artifact.artifact_id, len(self._numbers))
            return write(content, index=number)
        return write_stream(content)


def stream(alias: str) -> NumberedStream:
    return NumberedStream(alias)


def task(content: Content, alias: str, states: Sequence[Status]) -> JsonObject:
    """The history has all statuses, where later versions have messages."""
    return {**write(_renamed(content, alias)), "history": [write_status(status) for status in states]}


def event_name(kind: EventKind) -> str:
    return "artifact" if kind is EventKind.ARTIFACT else "status"


def _renamed(content: Content, alias: str) -> Content:
    """With the caller's id for the task."""
    if not alias or isinstance(content, Message):
        return content
    return replace(content, id=alias) if isinstance(content, Task) else replace(content, task_id=alias)
