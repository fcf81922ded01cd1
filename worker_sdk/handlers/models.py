"""Models of pydantic as what handlers take and give, and what callers send and get. The only code of the SDK that imports
pydantic, and only once there is a model.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from rolecall.model.a2a import JsonObject
from rolecall.protocol.text.jsontext import dump, has_more_values

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.json_schema import GenerateJsonSchema
    from pydantic_core import ErrorDetails

    ModelT = TypeVar("ModelT", bound=BaseModel)

MAX_MODEL_VALUES = 100_000
"""Values in a data part that is validated. pydantic keeps an error for each wrong one, of millions."""
_SHOWN = 5
_LONGEST_PATH = 200
_LONGEST_REASON = 120
_LONGEST_TEXT = 380
"""The hub passes on 500 characters of a worker's error."""

_NAMED = {
    "int": "a whole number",
    "float": "a number",
    "decimal": "a number",
    "bool": "true or false",
    "string": "a text",
    "bytes": "a text",
    "list": "a list",
    "tuple": "a list",
    "set": "a list",
    "frozen_set": "a list",
    "iterable": "a list",
    "dict": "an object",
    "mapping": "an object",
    "model": "an object",
    "model_attributes": "an object",
    "dataclass": "an object",
    "date": "a date",
    "time": "a time of day",
    "datetime": "a date with a time",
    "timezone": "a date with a time zone",
    "time_delta": "a duration",
    "uuid": "a UUID",
    "url": "a URL",
    "none": "null",
}
"""By the kinds of pydantic's errors: what stands before `_type`, `_parsing` and the like."""
_REASONS = {
    "missing": "is missing",
    "extra_forbidden": "is not known",
    "literal_error": "must be {expected}",
    "enum": "must be {expected}",
    "union_tag_not_found": "must have {discriminator}",
    "union_tag_invalid": "must have {discriminator} with one of {expected_tags}",
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "multiple_of": "must be a multiple of {multiple_of}",
    "finite_number": "must be finite",
    "too_short": "must have at least {min_length} items",
    "too_long": "must have at most {max_length} items",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
    "string_pattern_mismatch": "must match {pattern}",
    "value_error": "{error}",
    "assertion_error": "{error}",
}
"""A validator's own ValueError has a text for callers. pydantic's texts are not passed on: they change with its version."""


class Mismatch(ValueError):
    """Data that does not match its model. `problems`: the first of `count`. `paths`: the members that are wrong or missing, as
    `lines[2].price`.
    """

    def __init__(self, model: type[BaseModel], where: str, problems: Sequence[tuple[str, str]], count: int = 1) -> None:
        text = f"{where} does not match {model.__name__}: "
        shown = 0
        for path, reason in problems:
            added = f'{"; " if shown else ""}"{path}" {reason}' if path else f"it {reason}"
            if shown and len(text) + len(added) > _LONGEST_TEXT:
                break
            text += added
            shown += 1
        super().__init__(f"{text}; and {count - shown} more." if count > shown else f"{text}.")
        self.paths = tuple(path for path, _ in problems)


def is_model(annotation: Any) -> bool:
    """Whoever defined the model has imported pydantic."""
    pydantic = sys.modules.get("pydantic.main")
    return pydantic is not None and isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel)


def read_model(model: type[ModelT], data: Any, where: str) -> ModelT:
    """The data of a part as that model, by the rules for JSON. Mismatch; `where` is the part."""
    from pydantic import ValidationError

    text = dump(data)
    if has_more_values(text, MAX_MODEL_VALUES):
        raise Mismatch(model, where, [("", f"has more than {MAX_MODEL_VALUES:,} values, so send it as a file")])
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        problems = [(_path_of(one["loc"]), _reason_of(one)) for one in found[:_SHOWN]]
        raise Mismatch(model, where, problems, len(found)) from None


def write_model(value: BaseModel) -> JsonObject:
    """TypeError: JSON has no form for it, or the model stands for something else than an object."""
    from pydantic_core import PydanticSerializationError

    try:
        document = value.model_dump(mode="json", by_alias=True)
    except PydanticSerializationError as error:
        raise TypeError(f"{type(value).__name__} cannot be written as JSON: {error}") from error
    if not isinstance(document, dict):
        raise TypeError(f"{type(value).__name__} is not an object in JSON, as a data part has to be")
    return document


def data_of(value: Mapping[str, Any] | BaseModel) -> JsonObject:
    return dict(value) if isinstance(value, Mapping) else write_model(value)


def schema_of(models: Sequence[type[BaseModel]], mode: Literal["validation", "serialization"]) -> JsonObject:
    """The JSON Schema of data that matches one of the models. TypeError: a model has none."""
    from pydantic import TypeAdapter
    from pydantic.errors import PydanticUserError

    one_of: Any = models[0]
    for model in models[1:]:
        one_of = one_of | model
    try:
        return TypeAdapter(one_of).json_schema(mode=mode, schema_generator=_plain_schemas())
    except PydanticUserError as error:
        raise TypeError(f"{' | '.join(model.__name__ for model in models)} has no JSON Schema: {error}") from error


@cache
def _plain_schemas() -> type[GenerateJsonSchema]:
    from pydantic.json_schema import GenerateJsonSchema

    class PlainSchemas(GenerateJsonSchema):
        """Without a title for each member, which repeats its name: a card is small."""

        def field_title_should_be_set(self, schema: Any) -> bool:
            return False

    return PlainSchemas


def _path_of(steps: Sequence[str | int]) -> str:
    path = ""
    for step in steps:
        path += f"[{step}]" if isinstance(step, int) else f"{'.' if path else ''}{step}"
    return path[:_LONGEST_PATH]


def _reason_of(error: ErrorDetails) -> str:
    kind = error["type"]
    if kind in _REASONS:
        return _REASONS[kind].format_map(error.get("ctx", {}))[:_LONGEST_REASON]
    names = (kind.removesuffix(end) for end in ("_type", "_parsing", "_from_float", "_from_date_parsing", "_aware", "_naive"))
    named = next((_NAMED[name] for name in names if name in _NAMED), None) or _NAMED.get(kind.partition("_")[0])
    return f"must be {named}" if named else "is not valid"
