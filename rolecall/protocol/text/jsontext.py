"""JSON as it may come in, and as it goes out."""

from __future__ import annotations

import re
from array import array
from itertools import accumulate
from typing import Any

from msgspec import MsgspecError
from msgspec.json import Decoder, Encoder

from rolecall.errors import InvalidRequest, TooDeep
from rolecall.model.a2a import JsonObject

DEEPEST = 200
# A string that never ends goes to the end of the text: nothing is read twice, whatever the text is.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_STEP = bytes(1 if one in b"[{" else 255 if one in b"]}" else 0 for one in range(256))
_NO_BRACKET = bytes(one for one in range(256) if one not in b"[]{}")


class NotJson(ValueError):
    """One UTF-8 JSON value with finite numbers was expected."""


class Nested(NotJson):
    """It is JSON, but nested too deeply."""


_decode = Decoder().decode
dump = Encoder().encode


def parse(text: bytes | bytearray, most_deep: int = DEEPEST) -> Any:
    """Strict: what is beyond a float's range is no number, what is no UTF-8 no text. NotJson, Nested."""
    try:
        value = _decode(text)
    except (MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise NotJson(str(error)) from error
    if is_deeper(text, most_deep):
        raise Nested
    return value


def read_object(text: bytes | bytearray, most_deep: int) -> JsonObject:
    """A body that has to be one object. InvalidRequest, TooDeep."""
    try:
        document = parse(text, most_deep)
    except Nested as error:
        raise TooDeep(most_deep) from error
    except NotJson as error:
        raise InvalidRequest("The body must be one JSON object in UTF-8.") from error
    if not isinstance(document, dict):
        raise InvalidRequest("The body must be a JSON object.")
    return document


def is_deeper(text: bytes | bytearray, limit: int) -> bool:
    """More than so many arrays and objects in one another? There are seldom so many at all, and then nothing is looked at."""
    if len(text) <= 2 * limit or text.count(b"[") + text.count(b"{") <= limit:
        return False
    steps = array("b", _STRING.sub(b"", text).translate(_STEP, _NO_BRACKET))
    return max(accumulate(steps), default=0) > limit
