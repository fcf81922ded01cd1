"""Encode a log's events for one reader: as they are in the log, or translated into its dialect; for streams as SSE frames."""

from __future__ import annotations

from collections.abc import Sequence

from rolecall.errors import InvalidAnswer
from rolecall.model.a2a import Event, EventKind, JsonObject, Logged
from rolecall.model.content import ArtifactUpdate, Content, Message, Task
from rolecall.model.value import replace
from rolecall.protocol.callers.answers import wrapped
from rolecall.protocol.dialect import V0_1, read_content, write_content
from rolecall.protocol.jsonrpc import write_result
from rolecall.protocol.sse import write_frame
from rolecall.protocol.text.jsontext import dump, parse
from rolecall.protocol.untranslatable import Untranslatable
from rolecall.protocol.v0_1 import shape as shape01

_HERE = b"\0"
"""The place of the event. JSON contains no such byte."""


class EventEncoder:
    """Encodes events for one reader. In 0.1 an artifact has a number instead of an id; the encoder keeps these numbers.

    `alias`: the reader's id for the task in 0.1. Other dialects use the hub's id.
    """

    __slots__ = ("_alias", "_numbers", "dialect")

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


class SseEncoder:
    """The text around an event is the same for all events of a kind, so it is made once. `call_id`: wrap events in JSON-RPC
    responses to this call; None: bare, for REST. `named`: with the event names of 0.1.
    """

    __slots__ = ("_call_id", "_dialect", "_encode", "_named", "_wrappers")

    def __init__(self, event_encoder: EventEncoder, call_id: bytes | None = None, *, named: bool = False) -> None:
        self._encode = event_encoder.encode
        self._dialect = event_encoder.dialect
        self._call_id = call_id
        self._named = named
        self._wrappers: dict[EventKind, tuple[bytes, bytes]] = {}

    def frames(self, batch: Sequence[Logged]) -> bytes:
        pieces: list[bytes] = []
        for logged in batch:
            event = logged.event
            before, behind = self._wrappers.get(event.kind) or self._wrapper_of(event.kind)
            pieces += (b"id: %d\n" % logged.cursor, before, self._encode(event), behind)
        return b"".join(pieces)

    def _wrapper_of(self, kind: EventKind) -> tuple[bytes, bytes]:
        body = wrapped(kind, _HERE, self._dialect)
        if self._call_id is not None:
            body = write_result(self._call_id, body)
        before, _, behind = write_frame(body, event=named_event(kind) if self._named else None).partition(_HERE)
        self._wrappers[kind] = before, behind
        return before, behind
