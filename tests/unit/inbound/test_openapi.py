"""The description of the hub's own APIs is whole, is made from what the handlers are held to, and lies in the docs as it is."""

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
async def pages() -> AsyncIterator[Quart]:
    async with assemble(Settings.of(store="memory:"), port=8420) as rolecall:
        yield rolecall.application._api  # type: ignore[misc]  # Quart's, behind ASGI's type


async def test_every_route_and_method_of_the_hubs_own_is_described(pages: Quart) -> None:
    served = {
        (method.lower(), rule.rule.replace("<", "{").replace(">", "}"))
        for rule in pages.url_map.iter_rules()
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}
    }
    described = {(method, path) for path, item in document(pages)["paths"].items() for method in item}
    assert described - {("options", "/.well-known/ai-catalog.json")} == served


async def test_a_route_that_says_nothing_of_itself_cannot_be_described(pages: Quart) -> None:
    pages.add_url_rule("/silent", "silent", lambda: "", methods=["GET"])
    with pytest.raises(KeyError, match="says nothing of itself"):
        document(pages)


async def test_what_needs_a_token_says_so_and_every_name_is_there_once(pages: Quart) -> None:
    operations = {path: item[method] for path, item in document(pages)["paths"].items() for method in item}
    open_to_all = {path for path, operation in operations.items() if {} in operation["security"]}
    assert open_to_all == {path for path in operations if ".well-known" in path or path in ("/livez", "/readyz", "/health")}
    names = [item[method]["operationId"] for item in document(pages)["paths"].values() for method in item]
    assert len(names) == len(set(names))


async def test_every_reference_leads_somewhere(pages: Quart) -> None:
    described = document(pages)

    def references(value: Any) -> list[str]:
        if isinstance(value, dict):
            own = [value["$ref"]] if "$ref" in value else []
            return [*own, *(found for member in value.values() for found in references(member))]
        return [found for item in value for found in references(item)] if isinstance(value, list) else []

    for reference in references(described):
        kind, name = reference.removeprefix("#/components/").split("/")
        assert name in described["components"][kind]


async def test_the_file_in_the_docs_is_what_a_hub_serves() -> None:
    spec = spec_from_file_location("openapi", ROOT / "scripts" / "openapi.py")
    assert spec is not None
    assert spec.loader is not None
    script = module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.FILE.read_text(encoding="utf-8") == await script.written(), "run scripts/openapi.py"


# --- types as schemas


class Colour(StrEnum):
    RED = "red"


class Inner(TypedDict):
    """What lies
    inside."""

    count: Annotated[int, SchemaHints(minimum=0)]
    maybe: NotRequired[str | None]


class Loose(TypedDict, total=False):
    needed: Required[list[Inner]]
    named: dict[str, float]


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        (bool, {"type": "boolean"}),
        (Any, {}),
        (Colour, {"type": "string", "enum": ["red"]}),
        (Literal["a", 1], {"enum": ["a", 1]}),
        (str | None, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (dict[str, Any], {"type": "object", "additionalProperties": {}}),
        (Annotated[str, SchemaHints(maxLength=3)], {"type": "string", "maxLength": 3}),
    ],
)
def test_a_type_is_the_schema_of_what_it_holds(kind: Any, schema: dict[str, Any]) -> None:
    assert Schemas().of(kind) == schema


@pytest.mark.parametrize(("closed", "ending"), [(True, {"additionalProperties": False}), (False, {})])
def test_a_typed_dict_is_kept_by_its_name_with_what_it_needs(closed: bool, ending: dict[str, Any]) -> None:
    schemas = Schemas("#/")
    assert schemas.of(Loose, closed=closed) == {"$ref": "#/Loose"}
    count = {"type": "integer", "minimum": 0}
    maybe = {"anyOf": [{"type": "string"}, {"type": "null"}]}
    inner = {"type": "object", "description": "What lies inside.", "properties": {"count": count, "maybe": maybe}}
    needed = {"type": "array", "items": {"$ref": "#/Inner"}}
    named = {"type": "object", "additionalProperties": {"type": "number"}}
    assert schemas.known == {
        "Inner": {**inner, "required": ["count"], **ending},
        "Loose": {"type": "object", "properties": {"needed": needed, "named": named}, "required": ["needed"], **ending},
    }


def test_what_a_handler_says_leaves_it_as_it_was() -> None:
    async def handler() -> str:
        return "x"

    assert documented("About.", {200: str})(handler) is handler
