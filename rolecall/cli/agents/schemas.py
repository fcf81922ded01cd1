"""What a worker takes, for people: an example that matches its JSON Schema, and its members with their kinds in one line.

The schema is somebody else's: it may be no schema, refer to itself, or stand for more than anybody can print.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rolecall.model.a2a import JsonObject

_DEEPEST = 8
_MOST = 300
"""Values of an example; members that are text_of."""
_LONGEST = 300
_FORMATS = {
    "date": "2026-01-31",
    "date-time": "2026-01-31T12:00:00Z",
    "time": "12:00:00Z",
    "duration": "PT1H",
    "uuid": "01890a5d-ac96-774b-bcce-b302099a8057",
    "email": "me@example.com",
    "uri": "https://example.com",
    "ipv4": "127.0.0.1",
    "ipv6": "::1",
}
_KINDS = {"string": "text", "integer": "whole number", "boolean": "true or false"}
_ONLY_TEXT = {"title", "description"}
_NOT_FOLLOWED = (
    *("allOf", "contains", "if", "minProperties", "not", "pattern", "patternProperties", "prefixItems"),
    *("propertyNames", "uniqueItems"),
)
"""What an example could miss."""


class NoExample(Exception):
    """Nobody can tell what matches."""


def example_of(schema: Mapping[str, Any]) -> Any:
    """A value that matches, without what may be left out. NoExample."""
    try:
        return _Reader(schema).example(schema, "text", 0)
    except (TypeError, ValueError, AttributeError, OverflowError):  # it is no schema
        raise NoExample from None


def members_of(schema: Mapping[str, Any]) -> str:
    """As `{items: [{what: text, count?: whole number}]}`: a question mark stands behind what may be left out."""
    try:
        text = _Reader(schema).text_of(schema, 0)
    except (NoExample, TypeError, AttributeError):
        return "anything"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def required_of(schema: Mapping[str, Any]) -> Sequence[str]:
    """The names of the members that must be there."""
    try:
        found = _Reader(schema).resolved(schema).get("required")
    except (NoExample, TypeError, AttributeError):
        return ()
    return [str(name) for name in found] if isinstance(found, list) else ()


class _Reader:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._left = _MOST

    def resolved(self, schema: Any) -> JsonObject:
        """What a reference stands for. NoExample: nothing, or there were too many."""
        self._left -= 1
        for _ in range(_DEEPEST):
            if not isinstance(schema, dict) or self._left < 0:
                break
            if not isinstance(schema.get("$ref"), str):
                return schema
            found: Any = self._root
            for step in schema["$ref"].removeprefix("#/").split("/"):
                found = found.get(step) if isinstance(found, dict) else None
            schema = found
        raise NoExample

    def example(self, schema: Any, name: str, depth: int) -> Any:
        schema = self.resolved(schema)
        if depth > _DEEPEST:
            raise NoExample
        if "const" in schema:
            return schema["const"]
        for key in ("enum", "examples"):
            if isinstance(schema.get(key), list) and schema[key]:
                return schema[key][0]
        if "default" in schema:
            return schema["default"]
        if any(key in schema for key in _NOT_FOLLOWED):
            raise NoExample
        if (choices := schema.get("anyOf") or schema.get("oneOf")) is not None:
            return self.example(choices[0], name, depth + 1)
        return self._of_kind(schema, name, depth)

    def _of_kind(self, schema: JsonObject, name: str, depth: int) -> Any:
        match schema.get("type"):
            case "object":
                properties = schema.get("properties") or {}
                names = schema.get("required") or ()
                return {str(key): self.example(properties.get(key), str(key), depth + 1) for key in names}
            case "array":
                if schema.get("maxItems") == 0:
                    return []
                items = schema.get("items")
                return [self.example(items, name, depth + 1) for _ in range(max(1, schema.get("minItems") or 0))]
            case "string":
                return _text(schema, name)
            case "integer" | "number" as kind:
                return _number(schema, whole=kind == "integer")
            case "boolean":
                return True
            case "null":
                return None
        if schema.keys() <= _ONLY_TEXT:
            return name
        raise NoExample

    def text_of(self, schema: Any, depth: int) -> str:
        schema = self.resolved(schema)
        if depth > _DEEPEST:
            return "…"
        if isinstance(schema.get("enum"), list):
            return " or ".join(str(value) for value in schema["enum"])
        if "const" in schema:
            return str(schema["const"])
        if isinstance(choices := schema.get("anyOf") or schema.get("oneOf"), list):
            return " or ".join(self.text_of(choice, depth + 1) for choice in choices)
        kind = schema.get("type")
        if kind == "array":
            return f"[{self.text_of(schema.get('items', {}), depth + 1)}]"
        if kind == "object" and isinstance(schema.get("properties"), dict):
            return f"{{{', '.join(self._members(schema, depth))}}}"
        return str(schema.get("format") or _KINDS.get(str(kind)) or kind or "anything")

    def _members(self, schema: JsonObject, depth: int) -> Iterator[str]:
        required = schema.get("required") or ()
        for name, member in schema["properties"].items():
            yield f"{name}{'' if name in required else '?'}: {self.text_of(member, depth + 1)}"


def _text(schema: JsonObject, name: str) -> str:
    form, lower, upper = schema.get("format"), schema.get("minLength") or 0, schema.get("maxLength", math.inf)
    if form is None:
        text = name if len(name) <= upper else name[: int(upper)]
        text = text.ljust(min(lower, _LONGEST), "x")
    else:
        text = _FORMATS.get(str(form), "")
    if not text or not lower <= len(text) <= upper:
        raise NoExample
    return text


def _number(schema: JsonObject, *, whole: bool) -> float:
    """The nearest to 1 that its bounds allow."""
    step = schema.get("multipleOf") or 1
    lower = max(schema.get("minimum", -math.inf), schema.get("exclusiveMinimum", -math.inf))
    upper = min(schema.get("maximum", math.inf), schema.get("exclusiveMaximum", math.inf))
    first = math.floor(min(max(1.0, lower), upper) / step)
    near = [count * step for count in range(first - 2, first + 3)]
    if not whole and "multipleOf" not in schema and math.isfinite(lower + upper):
        near.append((lower + upper) / 2)
    for value in sorted(near, key=lambda one: abs(one - 1)):
        if _is_within(value, schema) and (not whole or value == int(value)):
            return int(value) if value == int(value) else value
    raise NoExample


def _is_within(value: float, schema: JsonObject) -> bool:
    fits = schema.get("minimum", -math.inf) <= value <= schema.get("maximum", math.inf)
    return bool(fits and schema.get("exclusiveMinimum", -math.inf) < value < schema.get("exclusiveMaximum", math.inf))
