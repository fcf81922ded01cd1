"""The OpenAPI documentation of a handler, and the conversion of types to JSON Schemas."""

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
"""An answer of this media type is a stream; its type is that of each event's data."""
_ATTRIBUTE = "rolecall_told"
_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}
_Handler = TypeVar("_Handler", bound=Callable[..., Any])


class SchemaHints:
    """JSON Schema keywords beyond the type, for use in `Annotated`. A class, because `Annotated` needs it hashable."""

    def __init__(self, **members: Any) -> None:
        self.members = members


@dataclass(frozen=True, slots=True)
class OperationDoc:
    """`answers`: by status, the type of the JSON, or a mapping by media type; None: no body. Refusals follow from `raises`.
    `body` and `query` are TypedDicts; `headers` maps names to types.
    """

    about: str
    answers: Mapping[int, Any]
    raises: tuple[type[HubError], ...] = ()
    body: Any = None
    body_required: bool = True
    query: Any = None
    headers: Mapping[str, Any] = field(default_factory=dict)


def documented(about: str, answers: Mapping[int, Any], *raises: type[HubError], **more: Any) -> Callable[[_Handler], _Handler]:
    """Decorates a handler, below its route."""
    doc = OperationDoc(about, answers, raises, **more)

    def attach(handler: _Handler) -> _Handler:
        setattr(handler, _ATTRIBUTE, doc)
        return handler

    return attach


def doc_of(handler: Callable[..., Any]) -> OperationDoc:
    """KeyError: the handler is not documented."""
    found: OperationDoc | None = getattr(handler, _ATTRIBUTE, None)
    if found is None:
        raise KeyError(f"{handler.__qualname__} is not documented: decorate it with @documented")
    return found


class Schemas:
    """Types as JSON Schemas. TypedDicts are collected by name in `known` and referenced."""

    def __init__(self, at: str = "#/components/schemas/") -> None:
        self._at = at
        self.known: dict[str, JsonObject] = {}

    def of(self, kind: Any, *, closed: bool = True) -> JsonObject:
        """`closed`: objects have no further members."""
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
            required = [name for name, (_, is_required) in members.items() if is_required]
            if required:
                schema["required"] = required
            if closed:
                schema["additionalProperties"] = False
        return {"$ref": self._at + kind.__name__}


def members_of(kind: Any) -> dict[str, tuple[Any, bool]]:
    """A TypedDict's members: type, and whether it is required."""
    annotations = get_type_hints(kind, include_extras=True)
    keys = kind.__required_keys__
    return {
        name: (annotation, get_origin(annotation) is not NotRequired and (name in keys or get_origin(annotation) is Required))
        for name, annotation in annotations.items()
    }


def flat(text: str) -> str:
    """A docstring as one line."""
    return " ".join(text.split())
