"""What a handler says of itself for the OpenAPI description, and how a type becomes a JSON Schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    Required,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from rolecall.errors import HubError
from rolecall.model.a2a import JsonObject

EVENTS = "text/event-stream"
"""An answer in it has no end: its type is that of each event's data."""
_TOLD = "rolecall_told"
_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}
_Handler = TypeVar("_Handler", bound=Callable[..., Any])


class SchemaHints:
    """What JSON Schema has to add to a type: stands in `Annotated`, which wants it to be hashable."""

    def __init__(self, **members: Any) -> None:
        self.members = members


@dataclass(frozen=True, slots=True)
class OperationDoc:
    """`answers`: what may come, by status, as JSON of that type, or by media type; None: nothing. What is refused comes
    from `raises`. `body` and `query` are TypedDicts; `headers` are by their names.
    """

    about: str
    answers: Mapping[int, Any]
    raises: tuple[type[HubError], ...] = ()
    body: Any = None
    body_required: bool = True
    query: Any = None
    headers: Mapping[str, Any] = field(default_factory=dict)


def documented(about: str, answers: Mapping[int, Any], *raises: type[HubError], **more: Any) -> Callable[[_Handler], _Handler]:
    """Stands over a handler, under its route."""
    telling = OperationDoc(about, answers, raises, **more)

    def note(handler: _Handler) -> _Handler:
        setattr(handler, _TOLD, telling)
        return handler

    return note


def doc_of(handler: Callable[..., Any]) -> OperationDoc:
    """KeyError: it says nothing, and then it cannot be described."""
    found: OperationDoc | None = getattr(handler, _TOLD, None)
    if found is None:
        raise KeyError(f"{handler.__qualname__} says nothing of itself: put @told over it")
    return found


class Schemas:
    """Types as JSON Schemas. TypedDicts are kept by their names in `known`, and referred to."""

    def __init__(self, at: str = "#/components/schemas/") -> None:
        self._at = at
        self.known: dict[str, JsonObject] = {}

    def of(self, kind: Any, *, closed: bool = True) -> JsonObject:
        """`closed`: objects have no members but those of their type."""
        origin, args = get_origin(kind), get_args(kind)
        if origin is Annotated:
            added = [member for extra in args[1:] if isinstance(extra, SchemaHints) for member in extra.members.items()]
            return {**self.of(args[0], closed=closed), **dict(added)}
        if origin in (NotRequired, Required):
            return self.of(args[0], closed=closed)
        if origin in (Union, UnionType):
            return {"anyOf": [self.of(one, closed=closed) for one in args]}
        if origin is Literal:
            return {"enum": list(args)}
        if origin is list:
            return {"type": "array", "items": self.of(args[0], closed=closed)}
        if origin is dict:
            return {"type": "object", "additionalProperties": self.of(args[1], closed=closed)}
        if kind is Any:
            return {}
        if is_typeddict(kind):
            return self._named(kind, closed)
        if issubclass(kind, StrEnum):
            return {"type": "string", "enum": [str(one) for one in kind]}
        return {"type": _PLAIN[kind]}

    def _named(self, kind: Any, closed: bool) -> JsonObject:
        if kind.__name__ not in self.known:
            members = members_of(kind)
            schema: JsonObject = {"type": "object"}
            if kind.__doc__:
                schema["description"] = flat(kind.__doc__)
            self.known[kind.__name__] = schema
            schema["properties"] = {name: self.of(one, closed=closed) for name, (one, _) in members.items()}
            required = [name for name, (_, needed) in members.items() if needed]
            if required:
                schema["required"] = required
            if closed:
                schema["additionalProperties"] = False
        return {"$ref": self._at + kind.__name__}


def members_of(kind: Any) -> dict[str, tuple[Any, bool]]:
    """A TypedDict's members: each its type, and whether it has to be there."""
    hints = get_type_hints(kind, include_extras=True)
    usual = kind.__required_keys__
    return {
        name: (hint, get_origin(hint) is not NotRequired and (name in usual or get_origin(hint) is Required))
        for name, hint in hints.items()
    }


def flat(text: str) -> str:
    """A docstring as one line."""
    return " ".join(text.split())
