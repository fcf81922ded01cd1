"""Tables that people write in TOML, such as `[[agents]]`, as models of pydantic: their keys, and what is wrong with one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from hub.settings.fields import expected_of, quoted
from rolecall.toml_file import suggestion

ENTRY = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, use_attribute_docstrings=True)
"""Of each such model. Below each key is what people read of it in the reference."""


class KeyText(NamedTuple):
    """What people read of a key. `expected`: what its value must be."""

    name: str
    about: str
    expected: str
    required: bool


def keys_of(model: type[BaseModel]) -> Iterator[KeyText]:
    for name, key in model.model_fields.items():
        expected = expected_of(key.annotation, key.metadata).text
        yield KeyText(name, key.description or "", expected, key.is_required())


def entry_problems(
    error: ValidationError, model: type[BaseModel], entry: Mapping[str, Any], place: Callable[[str], str], table: str
) -> Iterator[str]:
    """One line for each wrong key. `place` tells where a key stands, or the entry for ""; `table` is how the entry is written,
    such as `[[agents]]`.
    """
    seen: set[str] = set()
    for one in error.errors(include_url=False):
        key = str(one["loc"][0]) if one["loc"] else ""
        if key not in seen:
            seen.add(key)
            yield f"{place(key)}: {_problem(one, key, model, entry, table)}"


def _problem(error: ErrorDetails, key: str, model: type[BaseModel], entry: Mapping[str, Any], table: str) -> str:
    if not key:  # of several keys together
        return error["msg"]
    if error["type"] == "extra_forbidden":
        known = list(model.model_fields)
        otherwise = f" Its keys are {', '.join(known)}."
        return f'unknown key "{key}" of {table}.{suggestion(key, known, otherwise)}'
    if error["type"] == "missing":
        return f"{key}: is missing."
    if error["type"] == "refused":
        return f"{key}: {error['msg']}"
    setting = model.model_fields[key]
    return f"{key}: must be {expected_of(setting.annotation, setting.metadata).text}, not {quoted(entry[key])}"
