"""The sequence extension: the cursor of every event and Task in its metadata, and a cursor as a parameter. Its text is
docs/reference/sequence-extension.md.
"""

from __future__ import annotations

from msgspec import Raw, Struct
from msgspec.json import Decoder

from rolecall.errors import InvalidParams
from rolecall.model.a2a import OWN, JsonObject
from rolecall.model.card import SEQUENCE_EXTENSION, Extension
from rolecall.model.ids import Cursor
from rolecall.protocol.text.jsontext import dump, parse_stored

SEQUENCE = Extension(SEQUENCE_EXTENSION, "Events and tasks carry their sequence numbers, and a reader can go on after one.")


_MOST = 10**18
"""As many digits as Last-Event-ID may have."""


class _Top(Struct):
    """Only what is needed of a document, so that one of many megabytes is read without building it."""

    metadata: Raw = Raw()


_top = Decoder(_Top).decode


def numbered(body: bytes, cursor: Cursor) -> bytes:
    """The document with its number."""
    if not bytes(_top(body).metadata):
        return b'{"metadata":%b,%b' % (dump(_metadata({}, cursor)), body[1:])
    document = parse_stored(body)
    return dump({**document, "metadata": _metadata(document["metadata"] or {}, cursor)})


def _metadata(metadata: JsonObject, cursor: Cursor) -> JsonObject:
    """With a number of the hub's alone: a worker's own would be another hub's."""
    own = metadata.get(OWN)
    gap = {"gap": True} if isinstance(own, dict) and own.get("gap") is True else {}
    return {**metadata, SEQUENCE_EXTENSION: {"sequence": cursor, **gap}}


def read_after(params: JsonObject) -> Cursor | None:
    """The number of the last event that the reader has. InvalidParams."""
    metadata = params.get("metadata")
    own = metadata.get(SEQUENCE_EXTENSION) if isinstance(metadata, dict) else None
    if own is None:
        return None
    after = own.get("after") if isinstance(own, dict) else None
    if not isinstance(after, int) or isinstance(after, bool) or not 0 <= after < _MOST:
        raise InvalidParams(
            f'"after" in metadata["{SEQUENCE_EXTENSION}"] must be the sequence number of an event: a whole number.'
        )
    return Cursor(after)
