"""The OpenAPI description of the hub's own APIs, generated from their routes and their handlers' documentation."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from quart import Quart, Response

from hub.inbound.api.operation_doc import EVENTS, OperationDoc, Schemas, doc_of, documented, members_of
from hub.inbound.api.shapes import Instance, Position, Problem, Role, Segment, Worker
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
_PATH_PARAMETERS: dict[str, Any] = {
    "role": Role,
    "instance": Instance,
    "name": Worker,
    "task": Segment,
    "config": Segment,
    "cursor": Position,
}
_WRITES = frozenset({"POST", "PUT", "DELETE"})
_JSON = "application/json"
_SECURITY: list[JsonObject] = [{"bearer": []}, {"apiKey": []}]
_COMMON_ERRORS = (errors.Smuggled, errors.BodyTooLarge, errors.BadHost, errors.TooManyRequests, errors.HeadTooLarge)
_BODY_ERRORS = (errors.InvalidRequest, errors.TooDeep, errors.MediaTypeNotSupported, errors.BodyTooSlow)
_RETRY = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer", "minimum": 1}}}
_RETRY_STATUSES = (429, 503)
_STATUS_TEXTS = {
    200: "Done.",
    201: "A new lease.",
    202: "Accepted.",
    204: "No content.",
    304: "Not modified.",
    503: "Not ready.",
}


def add_description(app: Quart) -> None:
    cached: list[bytes] = []

    @app.get(PATH)
    @documented("This description.", {200: JsonObject})
    async def description() -> Response:
        caller()
        if not cached:
            cached.append(dump(document(app)))
        return Response(cached[0], content_type=_JSON)


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
        paths.setdefault(path, {})[method.lower()] = _operation(method, path, doc_of(handler), schemas, refusals)
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


def _operation(method: str, path: str, doc: OperationDoc, schemas: Schemas, refusals: Refusals) -> JsonObject:
    operation: JsonObject = {
        "operationId": re.sub(r"\W+", "_", f"{method.lower()}{path}").strip("_"),
        "summary": doc.about,
        "security": [{}, *_SECURITY] if is_open(path) else _SECURITY,
    }
    parameters = _parameters(path, doc, schemas)
    if parameters:
        operation["parameters"] = parameters
    if doc.body is not None:
        content = {_JSON: {"schema": schemas.of(doc.body, closed=False)}}
        operation["requestBody"] = {"required": doc.body_required, "content": content}
    operation["responses"] = {
        **{str(status): _answer(status, what, schemas) for status, what in doc.answers.items()},
        **refusals.of(_raised(method, path, doc), schemas),
    }
    return operation


def _parameters(path: str, doc: OperationDoc, schemas: Schemas) -> list[JsonObject]:
    in_path = [_parameter("path", name, _PATH_PARAMETERS[name], schemas) for name in re.findall(r"{(\w+)}", path)]
    query = members_of(doc.query) if doc.query is not None else {}
    return [
        *({**parameter, "required": True} for parameter in in_path),
        *(_parameter("query", name, kind, schemas) for name, (kind, _) in query.items()),
        *(_parameter("header", name, kind, schemas) for name, kind in doc.headers.items()),
    ]


def _parameter(where: str, name: str, kind: Any, schemas: Schemas) -> JsonObject:
    schema = schemas.of(kind)
    about = schema.pop("description", None)
    return {"name": name, "in": where, "schema": schema, **({"description": about} if about else {})}


def _answer(status: int, what: Any, schemas: Schemas) -> JsonObject:
    answer: JsonObject = {"description": _STATUS_TEXTS[status]}
    if what is not None:
        by_media = what if isinstance(what, Mapping) else {_JSON: what}
        answer["content"] = {media: _content(media, schemas.of(kind)) for media, kind in by_media.items()}
    return answer


def _content(media: str, schema: JsonObject) -> JsonObject:
    """OpenAPI 3.1 cannot describe the type of a stream's events."""
    return {"schema": {"type": "string"}, "x-event-data": schema} if media == EVENTS else {"schema": schema}


def _raised(method: str, path: str, doc: OperationDoc) -> Iterable[type[HubError]]:
    """The errors of the handler, and those of the middleware."""
    yield from doc.raises
    yield from _COMMON_ERRORS
    if not is_open(path):
        yield from (errors.Unauthenticated, errors.StoreUnavailable)
    if method in _WRITES:
        yield from (errors.CrossSite, errors.Forbidden)
    if doc.body is not None:
        yield from _BODY_ERRORS
