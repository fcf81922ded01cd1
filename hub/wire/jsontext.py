"""JSON as it may come in, and as it goes out."""

from __future__ import annotations

import re
from math import isfinite
from typing import Any

from pydantic_core import from_json, to_json

# The parser refuses NaN and Infinity, depth over 200 and huge integers, but reads 1e999 as infinity, and so 400 digits with
# a point behind them. Ids in hex may look like one too: a match only means that it is worth looking.
_MAY_BE_HUGE = re.compile(rb"[0-9][eE]\+?[0-9]{3}|(?<![0-9])[0-9]{200}")


class NotJson(ValueError):
    """One UTF-8 JSON value with finite numbers was expected."""


def parse(text: bytes | bytearray) -> Any:
    try:
        value = from_json(text, allow_inf_nan=False)
    except ValueError as error:
        raise NotJson(str(error)) from error
    if _MAY_BE_HUGE.search(text) and not _finite(value):
        raise NotJson("number out of range")
    return value


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
