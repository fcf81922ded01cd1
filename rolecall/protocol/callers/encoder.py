"""Encode a log's events for one reader: as they are in the log, or translated into its dialect; for streams as SSE frames."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from rolecall.errors import InvalidAnswer
from rolecall.model.a2a import Event, EventKind, Logged
from rolecall.protocol.callers.answers import wrapped
from rolecall.protocol.dialects import DIALECTS
from rolecall.protocol.extensions.sequence import numbered
from rolecall.protocol.jsonrpc import write_result
from rolecall.protocol.sse import write_frame
from rolecall.protocol.text.jsontext import dump, parse_stored
from rolecall.protocol.translation import read_content, write_content
from rolecall.protocol.untranslatable import Untranslatable

_HERE = b"\0"
"""The place of an insertion. JSON contains no such byte."""
_MAX_EVENTS, _MAX_SIZE = 256, 256 * 1024
"""Limits of the shared translations. Sizes are those of the events and of their translations."""
_Wrappers = dict[EventKind, tuple[bytes, bytes, bytes]]
"""The text before the call's id, between it and the event, and behind the event."""


class Translations:
    """The newest translations: an event is translated once for all readers that get it at the same time. They are few, because
    a reader that comes later reads other objects from the store.
    """

    def __init__(self) -> None:
        self._newest: dict[tuple[int, str], tuple[Event, bytes]] = {}
        """By the event's identity, which is its own as long as it is held here."""
        self.size = 0

    def find(self, event: Event, dialect: str) -> bytes:
        """InvalidAnswer if this dialect cannot express it."""
        found = self._newest.get((id(event), dialect))
        if found is None:
            found = self._newest[id(event), dialect] = event, _translate(event, dialect)
            self.size += len(event.body) + len(found[1])
            while self.size > _MAX_SIZE or len(self._newest) > _MAX_EVENTS:
                oldest, body = self._newest.pop(next(iter(self._newest)))
                self.size -= len(oldest.body) + len(body)
        return found[1]


class EventEncoder:
    """Encodes events for one reader. `alias`: the reader's id for the task, in a dialect that has a view of its own.
    `translations`: shared with other readers. `numbers`: the reader wants the sequence number in each event of a stream.
    """

    __slots__ = ("_stream", "_translations", "dialect", "numbers")

    def __init__(
        self, dialect: str, alias: str = "", translations: Translations | None = None, *, numbers: bool = False
    ) -> None:
        self.dialect = dialect
        self.numbers = numbers
        view = DIALECTS[dialect].view
        self._stream = view.stream(alias) if view is not None else None
        self._translations = translations

    @property
    def needs_all(self) -> bool:
        """What becomes of an event depends on those before it."""
        return self._stream is not None

    def encode(self, event: Event) -> bytes:
        """The bare document. InvalidAnswer if this dialect cannot express it."""
        if event.dialect == self.dialect:
            return event.body
        if self._stream is None:
            return self._translations.find(event, self.dialect) if self._translations else _translate(event, self.dialect)
        content = read_content(event.kind, parse_stored(event.body), event.dialect, self.dialect)
        try:
            return dump(self._stream.write(content))
        except Untranslatable as error:
            raise InvalidAnswer("The worker", f"{error} (to {self.dialect})") from error


def _translate(event: Event, dialect: str) -> bytes:
    return dump(write_content(read_content(event.kind, parse_stored(event.body), event.dialect, dialect), dialect))


class SseEncoder:
    """Encodes frames for one reader. `call_id`: wrap events in JSON-RPC responses to this call; None: bare, for REST. `named`:
    with the event names of the dialect's view.
    """

    __slots__ = ("_call_id", "_dialect", "_encode", "_numbers", "_wrappers")

    def __init__(self, event_encoder: EventEncoder, call_id: bytes | None = None, *, named: bool = False) -> None:
        self._dialect = event_encoder.dialect
        self._encode = event_encoder.encode
        self._numbers = event_encoder.numbers
        self._call_id = call_id or b""
        self._wrappers = _wrappers(event_encoder.dialect, call_id is not None, named)

    def frames(self, batch: Sequence[Logged]) -> bytes:
        pieces: list[bytes] = []
        for logged in batch:
            event = logged.event
            before, between, behind = self._wrappers[event.kind]
            body = event.body if event.dialect == self._dialect else self._encode(event)
            if self._numbers:
                body = numbered(body, logged.cursor)
            pieces += (b"id: %d\n" % logged.cursor, before, self._call_id, between, body, behind)
        return b"".join(pieces)


@cache
def _wrappers(dialect: str, in_responses: bool, named: bool) -> _Wrappers:
    """The text around an event is the same for all events of a kind, so it is made once."""
    return {kind: _wrapper(kind, dialect, in_responses, named) for kind in EventKind}


def _wrapper(kind: EventKind, dialect: str, in_responses: bool, named: bool) -> tuple[bytes, bytes, bytes]:
    body = wrapped(kind, _HERE, dialect)
    if in_responses:
        body = write_result(_HERE, body)
    view = DIALECTS[dialect].view if named else None
    before, *between, behind = write_frame(body, event=view.event_name(kind) if view else None).split(_HERE)
    return before, b"".join(between), behind
