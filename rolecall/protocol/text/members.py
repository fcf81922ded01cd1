"""Read single members of a document. A member of a wrong type raises Untranslatable with its path.

Null is the same as absent; so is an empty optional text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from rolecall.model.a2a import JsonObject
from rolecall.protocol.untranslatable import Untranslatable

_MOMENT = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d)(?::(\d\d)(?:[.,](\d+))?)? ?(?:[Zz]|([+-])(\d\d)(?::?(\d\d))?)?",
    re.ASCII,
)
_MAX_DIGITS = 9  # of a fraction of a second: 1.0 reads no more
_BASE64 = re.compile(r"[A-Za-z0-9+/]*")
_STANDARD = re.compile(r"[A-Za-z0-9+/]*+={0,2}")
_TO_STANDARD = str.maketrans("-_", "+/", " \t\r\n")


def mapping(value: Any, where: str) -> JsonObject:
    if not isinstance(value, dict):
        raise Untranslatable(f'"{where}" must be an object.')
    return value


def text(holder: JsonObject, name: str, where: str) -> str:
    value = holder.get(name)
    if not isinstance(value, str):
        raise Untranslatable(f'"{where}.{name}" must be a string.')
    return value


def optional_text(holder: JsonObject, name: str, where: str) -> str | None:
    value = holder.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise Untranslatable(f'"{where}.{name}" must be a string.')
    return value or None


def flag(holder: JsonObject, name: str, where: str) -> bool:
    value = holder.get(name)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise Untranslatable(f'"{where}.{name}" must be true or false.')
    return value


def metadata(holder: JsonObject, where: str) -> JsonObject | None:
    value = holder.get("metadata")
    return None if value is None else mapping(value, f"{where}.metadata")


def items(holder: JsonObject, name: str, where: str) -> Sequence[Any]:
    value = holder.get(name)
    if value is None:
        return ()
    if not isinstance(value, list):
        raise Untranslatable(f'"{where}.{name}" must be a list.')
    return value


def texts(holder: JsonObject, name: str, where: str) -> tuple[str, ...]:
    if holder.get(name) is None:
        return ()
    value = tuple(items(holder, name, where))
    if not all(isinstance(item, str) for item in value):
        raise Untranslatable(f'"{where}.{name}" must be a list of strings.')
    return value


def base64(value: str, where: str) -> str:
    """In the standard alphabet, padded, as strict readers require. The URL-safe alphabet and line ends are accepted too."""
    if len(value) % 4 == 0 and _STANDARD.fullmatch(value):
        return value  # without a copy: it may be a large file
    bare = value.translate(_TO_STANDARD).rstrip("=")
    if not _BASE64.fullmatch(bare) or len(bare) % 4 == 1:
        raise Untranslatable(f'"{where}" must be base64.')
    return bare + "=" * (-len(bare) % 4)


def moment(value: Any) -> str | None:
    """A time in UTC with Z; the fraction is kept. A time without an offset is UTC. None: not a time."""
    found = _MOMENT.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return None
    day, minute, second, fraction, sign, hours, minutes = found.groups()
    offset = timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
    try:
        local = datetime.fromisoformat(f"{day}T{minute}:{second or '00'}")
        utc = local + offset if sign == "-" else local - offset
    except (ValueError, OverflowError):
        return None
    return f"{utc.isoformat()}{f'.{fraction[:_MAX_DIGITS]}' if fraction else ''}Z"


def drop_empty(**members: Any) -> JsonObject:
    """A document of the members that are neither None nor an empty list."""
    return {name: value for name, value in members.items() if value is not None and value != []}
