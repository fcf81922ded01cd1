"""The headers of a call that mean something to us, in every binding."""

from __future__ import annotations

import re

from hub.inbound.a2a.operations import CallHeaders
from hub.inbound.middleware.request import Request
from hub.server.asgi import Headers
from rolecall.errors import GoesInCircles, InvalidParams
from rolecall.model.ids import Cursor

_EXTENSION = re.compile(r"[!-+\--~]{1,256}")
_MOST_EXTENSIONS = 32
_MOST_HOPS = 8
_IN_QUERY = b"A2A-Version="
_EXTENSION_HEADERS = (b"a2a-extensions", b"x-a2a-extensions")
_OURS = frozenset({b"last-event-id", b"idempotency-key", b"traceparent", b"a2a-hop", *_EXTENSION_HEADERS})
NOTHING = CallHeaders()


def read_call_headers(request: Request) -> CallHeaders:
    """InvalidParams for what cannot be meant."""
    said = request.headers
    if _OURS.isdisjoint(said):
        return NOTHING
    return CallHeaders(
        after=_cursor(said), key=_key(said), trace=_trace(said), extensions=_extensions(request), hops=_hops(said)
    )


def version_of(request: Request) -> str | None:
    """The version that the caller says he speaks: in the header, or in the query."""
    value = request.headers.get(b"a2a-version")
    if value is None:
        query = request.scope.get("query_string", b"")
        value = _version_in(query) if query else None
    return value.decode("ascii", "replace")[:20] if value else None


def echoed(request: Request) -> Headers:
    """Extensions that were asked for are passed on to the worker; the answer says so under the same name."""
    for name in _EXTENSION_HEADERS:
        if name in request.headers:
            return [(name, ", ".join(_extensions(request)).encode("ascii"))]
    return ()


def _version_in(query: bytes) -> bytes | None:
    said = (pair for pair in query.split(b"&") if pair.startswith(_IN_QUERY))
    return next(said, _IN_QUERY).removeprefix(_IN_QUERY)


def _extensions(request: Request) -> tuple[str, ...]:
    said: list[str] = []
    if request.headers.keys().isdisjoint(_EXTENSION_HEADERS):
        return ()
    for name, value in request.scope["headers"]:
        if name in _EXTENSION_HEADERS:
            said += [item.strip() for item in value.decode("ascii", "ignore").split(",")]
    fitting = (item for item in said if _EXTENSION.fullmatch(item))
    return tuple(dict.fromkeys(fitting))[:_MOST_EXTENSIONS]


def _key(headers: dict[bytes, bytes]) -> str | None:
    value = headers.get(b"idempotency-key")
    if value is None or not value.strip():
        return None
    if len(value) > 255 or not value.isascii():
        raise InvalidParams("Idempotency-Key must be at most 255 characters of ASCII.")
    return value.strip().decode()


def _trace(headers: dict[bytes, bytes]) -> str | None:
    value = headers.get(b"traceparent")
    return value.decode("ascii", "ignore")[:256] if value else None


def _hops(headers: dict[bytes, bytes]) -> int:
    """Hubs that call each other in a circle would do so for ever."""
    value = headers.get(b"a2a-hop", b"0")
    hops = int(value) if value.isdigit() and len(value) < 4 else _MOST_HOPS
    if hops >= _MOST_HOPS:
        raise GoesInCircles(_MOST_HOPS)
    return hops


def _cursor(headers: dict[bytes, bytes]) -> Cursor | None:
    value = headers.get(b"last-event-id")
    if value is None or not value.strip():
        return None
    if not value.isdigit() or len(value) > 18:
        raise InvalidParams("Last-Event-ID must be the id of an event of this task: a whole number.")
    return Cursor(int(value))
