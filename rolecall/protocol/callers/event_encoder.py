"""A log's events as one reader gets them: the log's own bytes where the dialects agree, translated where they do not."""

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
    """One reader's pen. In the oldest dialect an artifact has a number in place of an id, which it remembers.

    `alias`: what the reader calls the task there. Elsewhere it has the hub's id.
    """

    def __init__(self, dialect: str, alias: str = "") -> None:
        self.dialect = dialect
        self._alias = alias
        self._numbers: dict[str, int] = {}

    def encode(self, event: Event) -> bytes:
        """The bare document. InvalidAnswer where it cannot be said in this dialect."""
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
    """Under the name that its caller gave the task."""
    if not alias or isinstance(content, Message):
        return content
    return replace(content, id=alias) if isinstance(content, Task) else replace(content, task_id=alias)


def named_event(kind: EventKind) -> str:
    """What the oldest servers called their frames."""
    return "artifact" if kind is EventKind.ARTIFACT else "status"
