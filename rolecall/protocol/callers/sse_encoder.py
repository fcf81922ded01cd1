"""Encode a log's events as server-sent events for one reader."""

from __future__ import annotations

from collections.abc import Sequence

from rolecall.model.a2a import EventKind, Logged
from rolecall.protocol.callers.answers import wrapped
from rolecall.protocol.callers.event_encoder import EventEncoder, named_event
from rolecall.protocol.jsonrpc import write_result
from rolecall.protocol.sse import write_frame

_HERE = b"\0"
"""The place of the event. JSON contains no such byte."""


class SseEncoder:
    """The text around an event is the same for all events of a kind, so it is made once. `call_id`: wrap events in JSON-RPC
    responses to this call; None: bare, for REST. `named`: with the event names of 0.1.
    """

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
