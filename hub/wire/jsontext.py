"""JSON as it may come in, and as it goes out."""

from __future__ import annotations

import re
from array import array
from itertools import accumulate
from math import isfinite
from typing import Any

from pydantic_core import from_json, to_json

from hub.errors import InvalidRequest, TooDeep
from hub.model.a2a import JsonObject

DEEPEST = 200
# The parser refuses NaN and Infinity, depth over DEEPEST and huge integers, but reads 1e999 as infinity, and so 400 digits with
# a point behind them. Ids in hex may look like one too: a match only means that it is worth looking. With all digits alike,
# plain searches do, which cost a tenth of a pattern's time: this is done with every event.
_ALIKE = bytes.maketrans(b"123456789E", b"000000000e")
_MANY_DIGITS = b"0" * 60
# An id goes on with more letters or ends in a quote; a number does not.
_EXPONENT = re.compile(rb"0e\+?0{3,}(?:[,}\]\s]|\Z)")
# A string that never ends goes to the end of the text: nothing is read twice, whatever the text is.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_STEP = bytes(1 if one in b"[{" else 255 if one in b"]}" else 0 for one in range(256))
_NO_BRACKET = bytes(one for one in range(256) if one not in b"[]{}")


class NotJson(ValueError):
    """One UTF-8 JSON value with finite numbers was expected."""


def parse(text: bytes | bytearray) -> Any:
    try:
        value = from_json(text, allow_inf_nan=False)
    except ValueError as error:
        raise NotJson(str(error)) from error
    alike = text.translate(_ALIKE)
    exponent = (b"0e000" in alike or b"0e+000" in alike) and _EXPONENT.search(alike) is not None
    if (exponent or _MANY_DIGITS in alike) and not _finite(value):
        raise NotJson("number out of range")
    return value


def read_object(text: bytes | bytearray, most_deep: int) -> JsonObject:
    """A body that has to be one object. InvalidRequest, TooDeep."""
    try:
        document = parse(text)
    except NotJson as error:
        raise InvalidRequest("The body must be one JSON object in UTF-8.") from error
    if is_deeper(text, most_deep):
        raise TooDeep(most_deep)
    if not isinstance(document, dict):
        raise InvalidRequest("The body must be a JSON object.")
    return document


def is_deeper(text: bytes | bytearray, limit: int) -> bool:
    """More than so many arrays and objects in one another? There are seldom so many at all, and then nothing is looked at."""
    if text.count(b"[") + text.count(b"{") <= limit:
        return False
    steps = array("b", _STRING.sub(b"", text).translate(_STEP, _NO_BRACKET))
    return max(accumulate(steps), default=0) > limit


def dump(value: Any) -> bytes:
    return to_json(value)


def _finite(value: Any) -> bool:
    if isinstance(value, float):
        return isfinite(value)
    if isinstance(value, dict):
        return all(_finite(member) for member in value.values())
    if isinstance(value, list):
        return all(_finite(item) for item in value)
    return True
