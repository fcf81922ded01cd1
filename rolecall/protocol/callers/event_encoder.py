"""Encode a log's events for one reader: the log's bytes if the dialects are the same, else a translation."""

from __future__ import annotations

from rolecall.errors import InvalidAnswer
from rolecall.model.a2a import Event, EventKind, JsonObject
from rolecall.model.content import ArtifactUpdate, Content, Message, Task
from rolecall.model.value import replace
from rolecall.protocol.dialect import V0_1, read_content, write_content
from rolecall.protocol.text.jsontext import dump, parse
from rolecall.protocol.untranslatable import Untranslatable
from rolecall.protocol.v0_1 import shape as shape01


class EventEncoder:
    """Encodes events for one reader. In 0.1 an artifact has a number instead of an id; the encoder keeps these numbers.

    `alias`: the reader's id for the task in 0.1. Other dialects use the hub's id.
    """

    def __init__(self, dialect: str, alias: str = "") -> None:
        self.dialect = dialect
        self._alias = alias
        self._numbers: dict[str, int] = {}

    def encode(self, event: Event) -> bytes:
        """The bare document. InvalidAnswer if this dialect cannot express it."""
        if event.dialect == self.dialect:
            return event.body
        content = read_content(event.kind, parse(event.body), event.dialect, self.dialect)
        if self.dialect != V0_1:
            return dump(write_content(content, self.dialect))
        try:
            return dump(self._oldest(renamed(content, self._alias)))
        except Untranslatable as error:
            raise InvalidAnswer("The worker", f"{error} (to {self.dialect})") from error

    def _oldest(self, content: Content) -> JsonObject:
        if isinstance(content, Task):
            for artifact in content.artifacts:
                self._numbers.setdefault(artifact.artifact_id, len(self._numbers))
        if isinstance(content, ArtifactUpdate):
            number = self._numbers.setdefault(content.artifact.artifact_id, len(self._numbers))
            return shape01.write(content, index=number)
        return shape01.write_stream(content)


def renamed(content: Content, alias: str) -> Content:
    """The content with the caller's id for the task."""
    if not alias or isinstance(content, Message):
        return content
    return replace(content, id=alias) if isinstance(content, Task) else replace(content, task_id=alias)


def named_event(kind: EventKind) -> str:
    """The event names of 0.1 servers."""
    return "artifact" if kind is EventKind.ARTIFACT else "status"
