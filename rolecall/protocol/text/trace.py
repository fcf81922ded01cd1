"""W3C Trace Context: what of `traceparent` and `tracestate` is passed on. We make no spans, so it is passed on unchanged."""

from __future__ import annotations

import re
from collections.abc import Sequence

_PARENT = re.compile(
    rb"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?P<more>-[!-~]{0,128})?", re.ASCII
)
_MEMBER = re.compile(
    rb"(?:[a-z0-9][a-z0-9_*/-]{0,255}|[a-z0-9][a-z0-9_*/-]{0,240}@[a-z][a-z0-9_*/-]{0,13})=[ -+\--<>-~]{0,255}[!-+\--<>-~]"
)
_MOST_MEMBERS = 32
_LONGEST_STATE = 512
_LARGE_MEMBER = 128


def read_parent(value: bytes | None) -> str | None:
    """None: there is none, or it is invalid."""
    found = _PARENT.fullmatch(value.strip()) if value else None
    if found is None or (found["more"] is not None and found[0].startswith(b"00")):
        return None
    return found[0].decode()


def read_state(values: Sequence[bytes]) -> str | None:
    """The members of all `tracestate` headers, in order. None: there are none, or one is invalid. Beyond 512 characters the
    large members go first, then the oldest, which come last.
    """
    members = [member for value in values for part in value.split(b",") if (member := part.strip(b" \t"))]
    keys = {member.partition(b"=")[0] for member in members}
    if not members or len(members) > _MOST_MEMBERS or len(keys) < len(members) or not all(map(_MEMBER.fullmatch, members)):
        return None
    if _size(members) > _LONGEST_STATE:
        members = [member for member in members if len(member) <= _LARGE_MEMBER]
    while _size(members) > _LONGEST_STATE:
        members.pop()
    return b",".join(members).decode() or None


def _size(members: Sequence[bytes]) -> int:
    return sum(map(len, members)) + len(members) - 1
