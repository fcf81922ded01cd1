"""A log's events as server-sent events, as one reader gets them."""

from __future__ import annotations

from collections.abc import Sequence

from rolecall.model.a2a import EventKind, Logged
from rolecall.protocol.callers.answers import wrapped
from rolecall.protocol.callers.event_encoder import EventEncoder, named_event
from rolecall.protocol.jsonrpc import write_result
from rolecall.protocol.sse import write_frame

_HERE = b"\0"
"""Where the event goes. No JSON holds such a byte."""


class SseEncoder:
    """What stands around an event is the same for all of its kind, so it is made once. `call_id`: in responses to this call,
    in JSON-RPC; None: bare, as REST has them. `named`: with the event names that the oldest servers gave them.
    """

    def __init__(self, event_encoder: EventEncoder, call_id: bytes | None = None, *, named: bool = False) -> None:
        self._spell = event_encoder.encode
        self._dialect = event_encoder.dialect
        self._call_id = call_id
        self._named = named
        self._deps: dict[EventKind, tuple[bytes, bytes]] = {}

    def frames(self, batch: Sequence[Logged]) -> bytes:
        pieces: list[bytes] = []
        for logged in batch:
            event = logged.event
            before, behind = self._deps.get(event.kind) or self._learn(event.kind)
            pieces += (b"id: %d\n" % logged.cursor, before, self._spell(event), behind)
        return b"".join(pieces)

    def _learn(self, kind: EventKind) -> tuple[bytes, bytes]:
        body = wrapped(kind, _HERE, self._dialect)
        if self._call_id is not None:
            body = write_result(self._call_id, body)
        before, _, behind = write_frame(body, event=named_event(kind) if self._named else None).partition(_HERE)
        self._deps[kind] = before, behind
        return before, behind
