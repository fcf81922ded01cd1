"""The OpenAPI description covers every own route, uses the handlers' types, and equals the file in the docs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from enum import StrEnum
from importlib.util import module_from_spec, spec_from_file_location
from typing import Annotated, Any, Literal, NotRequired, Required, TypedDict

import pytest
from quart import Quart

from hub.app import assemble
from hub.inbound.api.openapi import document
from hub.inbound.api.operation_doc import SchemaHints, Schemas, documented
from hub.settings.model import Settings
from tests.helpers.processes import ROOT


@pytest.fixture
async def api() -> AsyncIterator[Quart]:
    async with assemble(Settings.of(store="memory:"), port=8420) as rolecall:
        yield rolecall.application._api  # type: ignore[misc]  # a Quart application, typed as ASGI


async def test_every_own_route_and_method_is_described(api: Quart) -> None:
    served = {
        (method.lower(), rule.rule.replace("<", "{").replace(">", "}"))
        for rule in api.url_map.iter_rules()
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}
    }
    operations = {(method, path) for path, item in document(api)["paths"].items() for method in item}
    assert operations - {("options", "/.well-known/ai-catalog.json")} == served


async def test_a_route_without_documentation_cannot_be_described(api: Quart) -> None:
    api.add_url_rule("/silent", "silent", lambda: "", methods=["GET"])
    with pytest.raises(KeyError, match="is not documented"):
        document(api)


async def test_security_is_described_and_operation_ids_are_unique(api: Quart) -> None:
    operations = {path: item[method] for path, item in document(api)["paths"].items() for method in item}
    open_to_all = {path for path, operation in operations.items() if {} in operation["security"]}
    assert open_to_all == {path for path in operations if ".well-known" in path or path in ("/livez", "/readyz", "/health")}
    names = [item[method]["operationId"] for item in document(api)["paths"].values() for method in item]
    assert len(names) == len(set(names))


async def test_every_reference_has_a_target(api: Quart) -> None:
    description = document(api)

    def references(value: Any) -> list[str]:
        if isinstance(value, dict):
            own = [value["$ref"]] if "$ref" in value else []
            return [*own, *(found for member in value.values() for found in references(member))]
        return [found for item in value for found in references(item)] if isinstance(value, list) else []

    for reference in references(description):
        kind, name = reference.removeprefix("#/components/").split("/")
        assert name in description["components"][kind]


async def test_the_file_in_the_docs_is_what_a_hub_serves() -> None:
    spec = spec_from_file_location("openapi", ROOT / "scripts" / "openapi.py")
    assert spec is not None
    assert spec.loader is not None
    script = module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.FILE.read_text(encoding="utf-8") == await script.written(), "run scripts/openapi.py"


# --- types as schemas


class State(StrEnum):
    SINGLE = "red"


class Inner(TypedDict):
    """What lies
    inside."""

    count: Annotated[int, SchemaHints(minimum=0)]
    maybe: NotRequired[str | None]


class Outer(TypedDict, total=False):
    needed: Required[list[Inner]]
    named: dict[str, float]


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        (bool, {"type": "boolean"}),
        (Any, {}),
        (State, {"type": "string", "enum": ["red"]}),
        (Literal["a", 1], {"enum": ["a", 1]}),
        (str | None, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (dict[str, Any], {"type": "object", "additionalProperties": {}}),
        (Annotated[str, SchemaHints(maxLength=3)], {"type": "string", "maxLength": 3}),
    ],
)
def test_a_type_becomes_a_schema(kind: Any, schema: dict[str, Any]) -> None:
    assert Schemas().of(kind) == schema


@pytest.mark.parametrize(("closed", "ending"), [(True, {"additionalProperties": False}), (False, {})])
def test_a_typed_dict_is_collected_by_name_with_its_required_members(closed: bool, ending: dict[str, Any]) -> None:
    schemas = Schemas("#/")
    assert schemas.of(Outer, closed=closed) == {"$ref": "#/Outer"}
    count = {"type": "integer", "minimum": 0}
    maybe = {"anyOf": [{"type": "string"}, {"type": "null"}]}
    inner = {"type": "object", "description": "What lies inside.", "properties": {"count": count, "maybe": maybe}}
    needed = {"type": "array", "items": {"$ref": "#/Inner"}}
    named = {"type": "object", "additionalProperties": {"type": "number"}}
    assert schemas.known == {
        "Inner": {**inner, "required": ["count"], **ending},
        "Outer": {"type": "object", "properties": {"needed": needed, "named": named}, "required": ["needed"], **ending},
    }


def test_documenting_a_handler_does_not_wrap_it() -> None:
    async def handler() -> str:
        return "x"

    assert documented("About.", {200: str})(handler) is handler
