"""What people read of a setting: its help, what its value must be, and the value itself."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError


@dataclass(frozen=True, slots=True)
class Expected:
    """What a value of a type must be, where `{ge}` and `{le}` are a setting's bounds; and the unit of the type."""

    text: str
    unit: str = ""


class Spec(NamedTuple):
    about: str
    effect: str
    default: str
    expected: str
    aliases: tuple[str, ...]
    secret: bool


def spec_of(field: FieldInfo) -> Spec:
    """Made from the help text below the field, its default, type and bounds. A secret is a field that `repr` leaves out."""
    extra = cast(dict[str, Any], field.json_schema_extra or {})
    about, _, effect = (field.description or "").partition("\n")
    expected = expected_of(field.annotation, field.metadata)
    bounds = {name: getattr(item, name) for item in field.metadata for name in ("ge", "le") if hasattr(item, name)}
    default = extra.get("default") or f"{shown(field.default)} {expected.unit}".rstrip()
    aliases = tuple(extra.get("aliases", ()))
    return Spec(about, effect.replace("\n", " "), default, expected.text.format(**bounds), aliases, secret=not field.repr)


def expected_of(annotation: Any, metadata: Sequence[object]) -> Expected:
    """Of a type with its metadata, of a choice, or of what may be None."""
    found = [item for item in metadata if isinstance(item, Expected)]
    if found:
        return found[-1]
    if get_origin(annotation) is Literal:
        return Expected(" or ".join(get_args(annotation)))
    inner = get_args(annotation)[0]
    return expected_of(inner, getattr(inner, "__metadata__", ()))


def refusal(text: str) -> PydanticCustomError:
    """An error of a value whose text people read as it is. They never read the texts of other errors."""
    return PydanticCustomError("refused", text)


def shown(value: object) -> str:
    """A value as people would write it, with passwords masked."""
    if value is None or value == ():
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ", ".join(str(item) for item in value)
    if isinstance(value, float):
        return f"{value:.10g}"
    return _masked(str(value))


def quoted(value: object) -> str:
    """A value as it was given, with passwords masked."""
    return _masked(repr(value))


def _masked(text: str) -> str:
    return re.sub(r"(?<=://)[^/@\s]*@", "***@", text)
