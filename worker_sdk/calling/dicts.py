"""What a dict means that a caller sends: it is data, unless it is exactly an A2A message or an A2A part."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rolecall.model.a2a import JsonObject

_OF_A_MESSAGE = frozenset(
    ("kind", "role", "messageId", "parts", "taskId", "contextId", "metadata", "extensions", "referenceTaskIds")
)
_KINDS = frozenset(("text", "data", "file"))
_CONTENTS = _KINDS | {"raw", "url"}
_AS_DATA = 'As data it is {"kind": "data", "data": {…}}'


def is_message(given: Mapping[str, Any]) -> bool:
    """Whether it is an A2A message. ValueError: it has `parts`, and is none."""
    if "parts" not in given:
        return False
    parts = given["parts"]
    foreign = next((name for name in given if name not in _OF_A_MESSAGE), None)
    if foreign is not None:
        problem = f'"{foreign}", which a message has not'
    elif not isinstance(parts, list | tuple) or not parts or not all(_may_be_part(part) for part in parts):
        problem = "no list of A2A parts in it"
    else:
        return True
    raise ValueError(f'The dict has "parts", as an A2A message has, and {problem}. {_AS_DATA}; as a message, Message({{…}}).')


def as_part(given: Mapping[str, Any]) -> JsonObject:
    """The part that a dict becomes, alone or in a list. ValueError: it looks like a part, and is none."""
    kind = given.get("kind")
    if not isinstance(kind, str) or kind not in _KINDS or kind not in given:
        return {"kind": "data", "data": dict(given)}
    foreign = next((name for name in given if name not in ("kind", "metadata", kind)), None)
    if foreign is None:
        return dict(given)
    raise ValueError(
        f'The dict has "kind" and "{kind}", as an A2A part has, and "{foreign}", which a part has not. {_AS_DATA}; as a part, '
        f'without "{foreign}".'
    )


def _may_be_part(part: Any) -> bool:
    """Old forms of parts have no kind."""
    return isinstance(part, Mapping) and any(name in part for name in _CONTENTS) and part.get("kind", "text") in _KINDS
