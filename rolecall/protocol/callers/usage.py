"""The usage extension: what tasks have used of language models, and the budget of a call. Its text is
docs/reference/usage-extension.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rolecall.errors import InvalidParams
from rolecall.model.a2a import JsonObject
from rolecall.model.card import USAGE_EXTENSION, Extension
from rolecall.model.usage import Budget, read_cost, read_tokens

USAGE = Extension(USAGE_EXTENSION, "Tasks tell what they have used of language models, and a call may have a budget.")


def read_budget(metadata: Sequence[JsonObject]) -> Budget | None:
    """The first that is there, in the metadata of the message and of the call. InvalidParams."""
    for document in metadata:
        own = document.get(USAGE_EXTENSION)
        if own is None:
            continue
        if not isinstance(own, dict):
            raise InvalidParams(f'metadata["{USAGE_EXTENSION}"] of a call must be an object.')
        if own.get("budget") is not None:
            return _read_budget(own["budget"])
    return None


def _read_budget(value: Any) -> Budget:
    where = f'metadata["{USAGE_EXTENSION}"].budget'
    if not isinstance(value, dict) or (value.get("tokens") is None and value.get("cost") is None):
        raise InvalidParams(f"{where} must be an object with tokens, a cost, or both.")
    tokens, cost = value.get("tokens"), value.get("cost")
    try:
        read = Budget(None if tokens is None else read_tokens(tokens), *((None, "") if cost is None else read_cost(cost)))
    except ValueError as error:
        raise InvalidParams(f"{where}: {error}.") from error
    if 0 in (read.tokens, read.nanos):
        raise InvalidParams(f"{where} must be more than nothing.")
    return read
