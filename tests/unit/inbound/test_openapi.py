"""The OpenAPI description covers every own route, uses the handlers' types, and equals the file in the docs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from enum import StrEnum
from importlib.util import module_from_spec, spec_from_file_location
from typing import Annotated, Any

import pytest
from msgspec import UNSET, Meta, Struct, UnsetType
from pydantic import Field
from quart import Quart

from hub.app import create_app
from hub.inbound.api.openapi import Schemas, document
from hub.inbound.api.validation import Body, text, whole
from hub.settings.model import Settings
from tests.helpers.processes import ROOT


@pytest.fixture
async def api() -> AsyncIterator[Quart]:
    app = create_app(Settings.of(store="memory:"), port=8420)
    async with app.test_app():
        yield app


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
    others = ("/agents/{role}/", "/livez", "/readyz", "/health")
    assert open_to_all == {path for path in operations if ".well-known" in path or path in others}
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


class Inner(Struct):
    """What lies
    inside."""

    count: Annotated[int, Meta(ge=0)]
    maybe: str | None = None
    state: State | UnsetType = UNSET


class Outer(Body):
    needed: list[Annotated[str, *text(3)]]
    limit: Annotated[int, *whole(1, 9)] = 5
    title: Annotated[str, Field(description="Of the\nwhole.")] | None = None
    states: tuple[State, ...] = ()


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        (str, {"type": "string"}),
        (dict[str, Any], {"type": "object"}),
        (Annotated[dict[str, Any], Meta(extra_json_schema={"required": ["a"]})], {"type": "object", "required": ["a"]}),
        (Inner, {"$ref": "#/components/schemas/Inner"}),
        (Outer, {"$ref": "#/components/schemas/Outer"}),
    ],
)
def test_a_type_becomes_a_schema(kind: Any, schema: dict[str, Any]) -> None:
    assert Schemas().of(kind) == schema


def test_schemas_of_structs_and_models_have_one_form() -> None:
    schemas = Schemas()
    for kind in (Inner, Outer, Inner, Outer):
        schemas.of(kind)
    state = {"$ref": "#/components/schemas/State"}
    maybe = {"anyOf": [{"type": "string"}, {"type": "null"}]}
    title = {"anyOf": [{"type": "string", "description": "Of the whole."}, {"type": "null"}]}
    assert schemas.known == {
        "State": {"type": "string", "enum": ["red"]},
        "Inner": {
            "type": "object",
            "description": "What lies inside.",
            "properties": {"count": {"type": "integer", "minimum": 0}, "maybe": maybe, "state": state},
            "required": ["count"],
        },
        "Outer": {
            "type": "object",
            "properties": {
                "needed": {"type": "array", "items": {"type": "string", "maxLength": 3, "pattern": "^[^\\x00]*$"}},
                "limit": {"type": "integer", "minimum": 1, "maximum": 9, "default": 5},
                "title": title,
                "states": {"type": "array", "items": state},
            },
            "required": ["needed"],
        },
    }


async def test_bodies_may_have_unknown_members_and_answers_have_none(api: Quart) -> None:
    schemas = document(api)["components"]["schemas"]
    bodies = {"CardInput", "DrainRequest", "Enrolment", "FlatEnrolment", "Heartbeat", "Proof", "SkillInput"}
    objects = {name: schema for name, schema in schemas.items() if schema["type"] == "object"}
    assert {name for name, schema in objects.items() if "additionalProperties" not in schema} == bodies
    assert all(objects[name]["additionalProperties"] is False for name in objects.keys() - bodies)
