"""What a repeated message is recognised by."""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple

from rolecall.model.ids import Cursor, TaskId
from rolecall.model.value import Value

_DIGEST_BYTES = 16


class CallName(Value, frozen=True):
    """The name of a call, unique in a store. `content`: the hash of the message, if the caller chose the name. A name that is
    made of the message has none.
    """

    digest: bytes
    content: bytes = b""


class StoredCall(NamedTuple):
    """An earlier call that has the name: its task, where in the task's log its answer begins, and the `content` of the name."""

    task: TaskId
    role: str
    began: Cursor
    content: bytes


def digest(*parts: str | bytes) -> bytes:
    """Part of the format of stored data: migrations call it too. No part but the last may contain a zero byte."""
    encoded = [part.encode() if isinstance(part, str) else part for part in parts]
    return blake2b(b"\0".join(encoded), digest_size=_DIGEST_BYTES).digest()
