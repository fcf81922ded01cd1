"""An operation of the hub's own API. Its handler's signature is the one declaration of what it takes and answers.

`body`, `query` and the parameters of the path are validated by their annotations before the handler runs, and the OpenAPI
description is made from the same annotations; so is that of the answer. mypy checks the handler against them. A handler that
writes its bytes itself returns a Response, and names what it answers in `answers`; one that returns a Response beside an answer
returns an error that it declares.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import wraps
from typing import Any, NamedTuple, TypeVar, get_args, get_type_hints

from msgspec import Struct
from pydantic import create_model
from quart import Response, request

from hub.inbound.api.application import json_object, reply
from hub.inbound.api.validation import Body, Query, has_required, members_of, validate
from hub.inbound.middleware.audit import required
from hub.inbound.middleware.authentication import own_scope, principal_of
from hub.inbound.middleware.request import Request
from rolecall.errors import HubError
from rolecall.model.a2a import JsonObject
from rolecall.model.principal import Principal, Right

EVENTS = "text/event-stream"
"""An answer of this media type is a stream; its type is that of each event's data."""
_ATTRIBUTE = "rolecall_operation"
_Handler = TypeVar("_Handler", bound=Callable[..., Any])


class Operation(NamedTuple):
    """`answers`: by status, the type of the JSON, or a mapping by media type; None: no body. Refusals follow from `raises`."""

    about: str
    answers: Mapping[int, Any]
    raises: tuple[type[HubError], ...]
    path: type[Query] | None
    query: type[Query] | None
    body: type[Body] | type[Struct] | None
    body_required: bool
    """If not, no body is the same as `{}`."""
    takes_bytes: bool = False
    """Of any media type, which the handler reads itself."""

    def read_body(self, document: JsonObject) -> Any:
        """OfferInvalid."""
        return None if self.body is None else validate(self.body, document)


def operation(
    about: str,
    *raises: type[HubError],
    status: int = 200,
    right: Right | None = None,
    answers: Mapping[int, Any] | None = None,
) -> Callable[[Callable[..., Awaitable[Any]]], Callable[..., Awaitable[Response]]]:
    """Decorates a handler of Quart's, below its route. `right`: checked before the request is read."""

    def decorate(handler: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Response]]:
        own = _read_signature(handler, about, raises, answers, status)

        @wraps(handler)
        async def serve(**path: str) -> Response:
            if right is not None:
                required(own_scope(), principal_of(own_scope()), right)
            given: dict[str, Any] = dict(validate(own.path, path)) if own.path is not None else {}
            if own.query is not None:
                given["query"] = validate(own.query, _query(own.query))
            if own.body is not None:
                given["body"] = own.read_body(await json_object(required=own.body_required))
            answer = await handler(**given)
            return answer if isinstance(answer, Response) else reply(answer, status)

        setattr(serve, _ATTRIBUTE, own)
        return serve

    return decorate


def documented(
    about: str, *raises: type[HubError], answers: Mapping[int, Any], takes_bytes: bool = False
) -> Callable[[_Handler], _Handler]:
    """Decorates a handler that Quart only lists. Who calls it validates its body and query with `operation_of`."""

    def decorate(handler: _Handler) -> _Handler:
        setattr(handler, _ATTRIBUTE, _read_signature(handler, about, raises, answers)._replace(takes_bytes=takes_bytes))
        return handler

    return decorate


def operation_of(handler: Callable[..., Any]) -> Operation:
    """KeyError: the handler is not documented."""
    found: Operation | None = getattr(handler, _ATTRIBUTE, None)
    if found is None:
        raise KeyError(f"{handler.__qualname__} is not documented: decorate it with @operation")
    return found


def _read_signature(
    handler: Callable[..., Any],
    about: str,
    raises: tuple[type[HubError], ...],
    answers: Mapping[int, Any] | None,
    status: int = 200,
) -> Operation:
    hints = get_type_hints(handler, include_extras=True)
    returned = hints.pop("return")
    if answers is None:
        models = [one for one in get_args(returned) or (returned,) if one is not Response]
        if len(models) != 1:
            raise TypeError(f"{handler.__qualname__} must return one model, or name its answers")
        answers = {status: models[0]}
    query, body = hints.pop("query", None), hints.pop("body", None)
    members: dict[str, Any] = {name: (hint, ...) for name, hint in hints.items() if hint not in (Principal, Request)}
    path = create_model("Path", __base__=Query, **members) if members else None
    return Operation(about, answers, raises, path, query, body, body is not None and has_required(body))


def _query(kind: type[Query]) -> JsonObject:
    """The members that the request has."""
    args, headers = request.args, request.headers
    found: JsonObject = {}
    for name, member in members_of(kind).items():
        if member.header is not None:
            if member.header in headers:
                found[str(name)] = headers[member.header]
        elif name in args:
            found[str(name)] = args.getlist(str(name)) if member.many else args[str(name)]
    return found
