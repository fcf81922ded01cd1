"""The OpenAPI description of the hub's own APIs, generated from their routes and the signatures of their handlers.

quart-schema would do a part of this, but nearly all of it would have to be overridden (decision 13).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import isclass
from typing import Any

from msgspec.json import schema_components
from pydantic import BaseModel
from quart import Quart, Response

from hub.inbound.api.answers import Problem
from hub.inbound.api.operation import EVENTS, Operation, operation, operation_of
from hub.inbound.api.validation import Query, members_of
from hub.inbound.middleware.authentication import caller, is_open
from rolecall import __version__, errors
from rolecall.errors import HubError
from rolecall.model.a2a import JsonObject
from rolecall.protocol.faults import row_of
from rolecall.protocol.text.jsontext import dump

PATH = "/registry/openapi.json"
_ABOUT = (
    "Rolecall's own APIs: registry, discovery, tasks, dead letters, operations. A2A itself, in JSON-RPC and REST, is "
    "described at a2a-protocol.org."
)
_SCHEMAS = "#/components/schemas/"
_NOTHING: tuple[tuple[str, Any], ...] = (("default", None), ("default", ""), ("default", []), ("required", []))
_WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_JSON = "application/json"
_SECURITY: list[JsonObject] = [{"bearer": []}, {"apiKey": []}]
_COMMON_ERRORS = (errors.Smuggled, errors.BodyTooLarge, errors.BadHost, errors.TooManyRequests, errors.HeadTooLarge)
_BODY_ERRORS = (errors.InvalidRequest, errors.TooDeep, errors.MediaTypeNotSupported, errors.BodyTooSlow)
_RETRY = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer", "minimum": 1}}}
_RETRY_STATUSES = (429, 503)
_STATUS_TEXTS = {
    200: "Done.",
    201: "Made.",
    202: "Accepted.",
    204: "No content.",
    206: "The range.",
    304: "Not modified.",
    503: "Not ready.",
}


def add_description(app: Quart) -> None:
    cached: list[bytes] = []

    @app.get(PATH)
    @operation("This description.", answers={200: JsonObject})
    async def description() -> Response:
        caller()
        if not cached:
            cached.append(dump(document(app)))
        return Response(cached[0], content_type=_JSON)


class Schemas:
    """Types as JSON Schemas, which pydantic and msgspec make. Classes are collected by name in `known` and referenced."""

    def __init__(self) -> None:
        self.known: dict[str, JsonObject] = {}

    def of(self, kind: Any) -> JsonObject:
        """Of a body or an answer."""
        if isclass(kind) and issubclass(kind, BaseModel) and kind.__name__ not in self.known:
            self.known[kind.__name__] = self._of_model(kind)
        if isclass(kind) and kind.__name__ in self.known:
            return {"$ref": _SCHEMAS + kind.__name__}
        (schema,), found = schema_components((kind,), ref_template=_SCHEMAS + "{name}")
        for name, one in _plain(found).items():
            # msgspec gives enumerations no type.
            self.known.setdefault(name, {"type": "string", **one} if "enum" in one else one)
        made: JsonObject = _plain(schema)
        return made

    def members_of(self, kind: type[BaseModel]) -> dict[str, JsonObject]:
        """Those of a query, where an absent member is not `null`, which a type names last."""
        found: dict[str, JsonObject] = {}
        for name, member in self._of_model(kind).get("properties", {}).items():
            first, *_ = member.pop("anyOf", ({},))
            found[name] = {**member, **first}
        return found

    def _of_model(self, kind: type[BaseModel]) -> JsonObject:
        schema: JsonObject = _plain(kind.model_json_schema(ref_template=_SCHEMAS + "{model}"))
        self.known.update(schema.pop("$defs", {}))
        return schema


def _plain(schema: Any) -> Any:
    """In one form, whichever library wrote it: without titles, which repeat names, without the defaults of absent members, and
    with docstrings as one line.
    """
    if isinstance(schema, list):
        return [_plain(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {name: _plain(value) for name, value in schema.items() if (name, value) not in _NOTHING}
    if isinstance(plain.get("title"), str):
        del plain["title"]
    if isinstance(plain.get("description"), str):
        plain["description"] = " ".join(plain["description"].split())
    if plain.get("multipleOf") == 1:
        del plain["multipleOf"]
        plain["type"] = "integer"
    return plain


class Refusals:
    """Error answers, by status, with the possible reasons. They are collected by name in `known` and referenced."""

    def __init__(self) -> None:
        self.known: dict[str, JsonObject] = {}

    def of(self, raised: Iterable[type[HubError]], schemas: Schemas) -> dict[str, JsonObject]:
        reasons: dict[int, set[str]] = {}
        for kind in raised:
            row = row_of(kind)
            reasons.setdefault(row.status, set()).add(row.reason)
        return {str(status): self._named(status, sorted(found), schemas) for status, found in sorted(reasons.items())}

    def _named(self, status: int, reasons: Sequence[str], schemas: Schemas) -> JsonObject:
        name = ".".join((str(status), *reasons))
        content = {"application/problem+json": {"schema": schemas.of(Problem)}}
        retry = {"headers": _RETRY} if status in _RETRY_STATUSES else {}
        self.known[name] = {"description": ", ".join(reasons), "content": content, **retry}
        return {"$ref": f"#/components/responses/{name}"}


def document(app: Quart) -> JsonObject:
    """KeyError: a handler is not documented."""
    schemas, refusals = Schemas(), Refusals()
    paths: dict[str, JsonObject] = {}
    for method, rule, handler in routes(app):
        path = rule.replace("<", "{").replace(">", "}")
        paths.setdefault(path, {})[method.lower()] = _operation(method, path, operation_of(handler), schemas, refusals)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Rolecall", "version": __version__, "description": _ABOUT},
        "paths": paths,
        "components": {
            "schemas": dict(sorted(schemas.known.items())),
            "responses": dict(sorted(refusals.known.items())),
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
            },
        },
    }


def routes(app: Quart) -> list[tuple[str, str, Callable[..., Any]]]:
    """Method, rule and handler of every route, without the HEAD and OPTIONS that Quart adds."""
    found = []
    for rule in app.url_map.iter_rules():
        automatic = {"HEAD", "OPTIONS"} if getattr(rule, "provide_automatic_options", True) else {"HEAD"}
        methods = (rule.methods or set()) - automatic
        found += [(method, rule.rule, app.view_functions[rule.endpoint]) for method in methods]
    return sorted(found, key=lambda route: (route[1], route[0]))


def _operation(method: str, path: str, own: Operation, schemas: Schemas, refusals: Refusals) -> JsonObject:
    found: JsonObject = {
        "operationId": re.sub(r"\W+", "_", f"{method.lower()}{path}").strip("_"),
        "summary": own.about,
        "security": [{}, *_SECURITY] if is_open(path, method) else _SECURITY,
    }
    parameters = [*_parameters("path", own.path, schemas), *_parameters("query", own.query, schemas)]
    if parameters:
        found["parameters"] = parameters
    if own.body is not None:
        content = {_JSON: {"schema": schemas.of(own.body)}}
        found["requestBody"] = {"required": own.body_required, "content": content}
    elif own.takes_bytes:
        found["requestBody"] = {"content": {"*/*": {}}}
    found["responses"] = {
        **{str(status): _answer(status, what, schemas) for status, what in own.answers.items()},
        **refusals.of(_raised(method, path, own), schemas),
    }
    return found


def _parameters(where: str, kind: type[Query] | None, schemas: Schemas) -> list[JsonObject]:
    if kind is None:
        return []
    found = []
    for name, schema in schemas.members_of(kind).items():
        header = members_of(kind)[name].header
        parameter: JsonObject = {"name": header or name, "in": "header" if header else where, "schema": schema}
        if "description" in schema:
            parameter["description"] = schema.pop("description")
        found.append({**parameter, "required": True} if kind.model_fields[name].is_required() else parameter)
    return found


def _answer(status: int, what: Any, schemas: Schemas) -> JsonObject:
    answer: JsonObject = {"description": _STATUS_TEXTS[status]}
    if what is not None:
        by_media = what if isinstance(what, Mapping) else {_JSON: what}
        answer["content"] = {media: _content(media, schemas.of(kind)) for media, kind in by_media.items()}
    return answer


def _content(media: str, schema: JsonObject) -> JsonObject:
    """OpenAPI 3.1 cannot describe the type of a stream's events."""
    return {"schema": {"type": "string"}, "x-event-data": schema} if media == EVENTS else {"schema": schema}


def _raised(method: str, path: str, own: Operation) -> Iterable[type[HubError]]:
    """The errors of the handler and of what it takes, and those of the middleware."""
    yield from own.raises
    for kind in (own.path, own.query):
        if kind is not None and any(member.reason for member in members_of(kind).values()):
            yield kind.refusal
    yield from _COMMON_ERRORS
    if not is_open(path, method):
        yield from (errors.Unauthenticated, errors.StoreUnavailable)
    if method in _WRITES:
        yield from (errors.CrossSite, errors.Forbidden)
    if own.body is not None:
        yield errors.OfferInvalid
        yield from _BODY_ERRORS
