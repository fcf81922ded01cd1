"""Validation of bodies and queries against their models. A refusal names one member and the reason.

pydantic validates what people and their tools send, msgspec what a worker sends with every heartbeat (decision 13). Bounds and
the reason stand beside a member's type, in `Annotated`; the reason is looked up only for a refusal.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from inspect import isclass
from typing import Any, ClassVar, NamedTuple, TypeVar, get_args, get_origin

import msgspec
from msgspec import Meta, Struct
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, GetCoreSchemaHandler, ValidationError
from pydantic_core import core_schema

from rolecall.errors import HubError, InvalidParams, OfferInvalid

MAX_NUMBER = 1_000_000_000
"""Of counts, and of a TTL in seconds."""
_NO_NUL = "^[^\\x00]*$"
_MEMBER = re.compile(r"`\$\.(\w+)")
_Shape = TypeVar("_Shape", bound=BaseModel | Struct)


class Body(BaseModel):
    """A request's body. Unknown members are ignored."""

    model_config = ConfigDict(strict=True, frozen=True, defer_build=True)
    refusal: ClassVar[type[HubError]] = OfferInvalid


class Query(BaseModel):
    """A request's query, and the headers that belong to it. All values are text. Unknown members are ignored."""

    model_config = ConfigDict(frozen=True, defer_build=True)
    refusal: ClassVar[type[HubError]] = InvalidParams


class Reason:
    """Why a value is refused. `others`: by the kind of pydantic's error."""

    def __init__(self, text: str, **others: str) -> None:
        self.text = text
        self.others = others


class Header:
    """The member of a query is in a header of that name."""

    def __init__(self, name: str) -> None:
        self.name = name


class Like:
    """The value is validated by a model and then left as it was sent: with unknown members, in its order."""

    def __init__(self, model: type[BaseModel]) -> None:
        self.model = model

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        def check(value: Any, validated: core_schema.ValidatorFunctionWrapHandler) -> Any:
            validated(value)
            return value

        return core_schema.no_info_wrap_validator_function(check, handler(self.model))


# --- bounds, for use as `Annotated[int, *whole(1, 10)]`


def text(longest: int, **others: str) -> tuple[Any, ...]:
    """In models and structs alike. `others`: as in Reason."""
    reason = Reason(f"must be at most {longest} characters, without NUL", **{"string_type": "must be a string", **others})
    return Field(max_length=longest, pattern=_NO_NUL), Meta(max_length=longest, pattern=_NO_NUL), reason


def whole(lowest: int, highest: int) -> tuple[Any, ...]:
    """In JSON 4.0 equals 4, and some languages always write the former."""
    return Field(ge=lowest, le=highest), BeforeValidator(_from_float), _whole_reason(lowest, highest)


def whole_float(lowest: int, highest: int) -> tuple[Any, ...]:
    """The same for structs, of the type float, because msgspec takes no 4.0 for an integer."""
    return Meta(ge=lowest, le=highest, multiple_of=1), _whole_reason(lowest, highest)


def digits(lowest: int, highest: int) -> tuple[Any, ...]:
    """A whole number in a query, header or path."""
    return Field(ge=lowest, le=highest), BeforeValidator(_from_digits), _whole_reason(lowest, highest)


def at_most(longest: int) -> tuple[Any, ...]:
    """The number of an object's members. Looked at first: pydantic keeps an error for each wrong member, of millions."""

    def check(value: Any) -> Any:
        if isinstance(value, dict) and len(value) > longest:
            raise ValueError
        return value

    return Field(max_length=longest), BeforeValidator(check)


def _whole_reason(lowest: int, highest: int) -> Reason:
    return Reason(f"must be a whole number from {lowest} to {highest}")


def _from_float(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _from_digits(value: str) -> int:
    """Only ASCII digits count: to Python, `²` is a digit too."""
    if not (value.isascii() and value.isdigit() and len(value) <= 19):
        raise ValueError
    return int(value)


# --- validating


def validate(kind: type[_Shape], document: Mapping[str, Any]) -> _Shape:
    """The error is the model's `refusal`, and OfferInvalid for a struct."""
    try:
        return msgspec.convert(document, kind) if issubclass(kind, Struct) else kind.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        raise _refusal(kind, first["loc"], first["type"]) from error
    except msgspec.ValidationError as error:
        message = str(error)
        wrong_type = "string_type" if ", got " in message else ""
        raise _refusal(kind, tuple(_MEMBER.findall(message)), wrong_type) from error


def has_required(kind: type[BaseModel] | type[Struct]) -> bool:
    if issubclass(kind, Struct):
        return any(field.required for field in msgspec.structs.fields(kind))
    return any(field.is_required() for field in kind.model_fields.values())


class Member(NamedTuple):
    """What is declared of a member. `model`: that of its value, or of the items of its list."""

    reason: Reason | None
    model: type[BaseModel] | None
    header: str | None
    many: bool


@cache
def members_of(kind: type[BaseModel] | type[Struct]) -> Mapping[str | int, Member]:
    if issubclass(kind, BaseModel):
        return {name: _member(field.annotation, *field.metadata) for name, field in kind.model_fields.items()}
    return {field.name: _member(field.type) for field in msgspec.structs.fields(kind)}


def _member(annotation: Any, *metadata: Any) -> Member:
    parts = [*metadata, *_parts(annotation)]
    reason = next((part for part in parts if isinstance(part, Reason)), None)
    header = next((part.name for part in parts if isinstance(part, Header)), None)
    models = [part.model if isinstance(part, Like) else part for part in parts]
    model = next((one for one in models if isclass(one) and issubclass(one, BaseModel)), None)
    return Member(reason, model, header, get_origin(annotation) is tuple)


def _parts(annotation: Any) -> Iterator[Any]:
    """The annotation, and everything in it: types and what `Annotated` adds to them."""
    yield annotation
    for part in get_args(annotation):
        yield from _parts(part)


def _refusal(kind: type[Any], where: tuple[int | str, ...], error_kind: str) -> HubError:
    """`where`: the members on the way to the wrong value, and keys and positions in between."""
    names: list[str] = []
    why = "is not valid"
    model: Any = kind
    for step in where:
        member = members_of(model).get(step) if model is not None else None
        if member is not None:
            names.append(member.header or str(step))
            model = member.model
            if member.reason is not None:
                why = member.reason.others.get(error_kind, member.reason.text)
    name = ".".join(names)
    if issubclass(kind, Query) and kind.refusal is InvalidParams:
        return InvalidParams(f'"{name}" {why}.')
    return OfferInvalid(name, why)
