"""Strict JSON parsing with a depth limit, and encoding."""

from __future__ import annotations

import re
from array import array
from itertools import accumulate
from json import JSONEncoder
from typing import Any

from msgspec import MsgspecError
from msgspec.json import Decoder, Encoder

from rolecall.errors import InvalidRequest, TooDeep, TooManyValues
from rolecall.model.a2a import JsonObject

DEEPEST = 200
MAX_VALUES = 400_000
"""Of one request. In memory an empty list takes thirty times its text, and a long text may be millions of them."""
# An unterminated string extends to the end of the text, so that no byte is read twice.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_STEP = bytes(1 if byte in b"[{" else 255 if byte in b"]}" else 0 for byte in range(256))
_NO_BRACKET = bytes(byte for byte in range(256) if byte not in b"[]{}")


class NotJson(ValueError):
    """The text is not one JSON value in UTF-8 with finite numbers."""


class Nested(NotJson):
    """The text is JSON, but nested too deeply."""


_decode = Decoder().decode
parse_stored = _decode
"""Parses what the hub has written itself: all of it was checked before."""
dump = Encoder().encode
_spell = JSONEncoder(ensure_ascii=False, check_circular=False, separators=(",", ":")).encode


def size_of(value: Any) -> int:
    """Bytes of the JSON of a value that is kept. `dump` would leave the UTF-8 form of each string in memory as long as the
    string lives.
    """
    return len(_spell(value).encode("utf-8", "surrogatepass"))


def parse(text: bytes | bytearray, max_depth: int = DEEPEST) -> Any:
    """Strict: refuses numbers beyond a float's range and text that is not UTF-8. NotJson, Nested."""
    try:
        value = _decode(text)
    except (MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise NotJson(str(error)) from error
    # Each level needs two brackets, so a short text has not too many.
    if len(text) > 2 * max_depth and is_deeper(text, max_depth):
        raise Nested
    return value


def has_more_values(text: bytes | bytearray, limit: int) -> bool:
    """Numbers, texts, lists and objects together; to be known before they are made. A text without many commas and brackets
    needs no closer look.
    """
    if len(text) <= limit or _count(text) <= limit:
        return False
    text = text.replace(rb"\\", b"").replace(rb"\"", b"")
    # Texts are values or names. So many pieces as there may be after this are quickly made.
    return text.count(b'"') > 4 * limit or _count(b"".join(text.split(b'"')[::2])) > limit


def _count(text: bytes | bytearray) -> int:
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def read_object(text: bytes | bytearray, max_depth: int) -> JsonObject:
    """A body that must be one object. InvalidRequest, TooDeep, TooManyValues."""
    if has_more_values(text, MAX_VALUES):
        raise TooManyValues(MAX_VALUES)
    try:
        document = parse(text, max_depth)
    except Nested as error:
        raise TooDeep(max_depth) from error
    except NotJson as error:
        raise InvalidRequest("The body must be one JSON object in UTF-8.") from error
    if not isinstance(document, dict):
        raise InvalidRequest("The body must be a JSON object.")
    return document


def is_deeper(text: bytes | bytearray, limit: int) -> bool:
    """Are more than `limit` arrays and objects nested? A text with fewer brackets than that needs no closer look."""
    if text.count(b"[") + text.count(b"{") <= limit:
        return False
    steps = array("b", _STRING.sub(b"", text).translate(_STEP, _NO_BRACKET))
    return max(accumulate(steps), default=0) > limit
