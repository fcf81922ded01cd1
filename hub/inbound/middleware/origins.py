"""Requests of web pages. A page of an origin that is not the hub's may change nothing, unless a setting lists it: then CORS
headers let the page read the answers too.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from hub.inbound.middleware.request import Request
from hub.server.asgi import Headers, Message, Send
from rolecall.errors import CrossSite
from rolecall.protocol.text.origin import Origin, read_origin

log = logging.getLogger(__name__)

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_OWN_SITES = (b"same-origin", b"none")
_SCHEMES = ("http", "https")
_PUBLIC = "/.well-known/"
"""Cards and the catalog are for pages of any origin."""
_MAX_NAMED = 100
_CORS_PREFIX = b"access-control-"
_READABLE = (
    b"access-control-expose-headers",
    b"ETag, Retry-After, WWW-Authenticate, A2A-Extensions, X-A2A-Extensions, A2A-Task, Location, Upload-Offset, Upload-Length, "
    b"Upload-Complete, Content-Range, Content-Disposition, Repr-Digest",
)
_PREFLIGHT: Headers = (
    (b"access-control-allow-methods", b"GET, HEAD, POST, PUT, PATCH, DELETE"),
    (
        b"access-control-allow-headers",
        b"Authorization, X-API-Key, Content-Type, Accept, Last-Event-ID, A2A-Version, A2A-Extensions, X-A2A-Extensions, "
        b"Idempotency-Key, Want-A2A-Task, If-None-Match, If-Modified-Since, If-Range, Range, Upload-Offset, Upload-Length, "
        b"Upload-Complete, Cache-Control, traceparent, tracestate",
    ),
    (b"access-control-max-age", b"600"),
)


class Origins:
    """`allowed`: origins whose pages may use the hub. `public_url`: the hub's own, if it is set."""

    def __init__(self, allowed: Sequence[str] = (), public_url: str | None = None) -> None:
        self._allowed = frozenset(filter(None, map(read_origin, allowed)))
        self._public = read_origin("/".join((public_url or "").split("/")[:3]))
        self._named: set[Origin] = set()
        """Refused, and named in the log."""

    def admit(self, request: Request) -> None:
        """Sets the CORS headers of the answer. CrossSite, also for the preflight of a page that may not use the hub. A request
        of no browser has neither of the two headers.
        """
        values = [value for name, value in request.scope["headers"] if name == b"origin"]
        origin = read_origin(values[0].decode("latin-1")) if len(values) == 1 else None
        if origin is not None and origin in self._allowed:
            request.cors = ((b"access-control-allow-origin", values[0]), _READABLE, (b"vary", b"Origin"))
        elif _may_change(request) and not self._is_own(request, origin, has_origin=bool(values)):
            self._name(origin)
            raise CrossSite

    def _name(self, origin: Origin | None) -> None:
        """Once for each origin: who runs a page sees only that its browser refuses, and the hub knows why."""
        if origin is not None and origin not in self._named and len(self._named) < _MAX_NAMED:
            self._named.add(origin)
            log.warning("page refused", extra={"event": "page_refused", "origin": str(origin), "why": CrossSite().message})

    def _is_own(self, request: Request, origin: Origin | None, *, has_origin: bool) -> bool:
        """What a browser addressed it has put into Host. A proxy may change that; then the public URL is the hub's origin.
        Another port of this machine is the same site, and not the same origin.
        """
        if not has_origin:
            return request.headers.get(b"sec-fetch-site") in _OWN_SITES
        if origin is None or origin == self._public:
            return origin is not None
        host = request.headers.get(b"host") or request.headers.get(b":authority") or b""
        addressed = read_origin(f"{request.scope.get('scheme', 'http')}://{host.decode('latin-1')}")
        return addressed is not None and origin.scheme in _SCHEMES and origin[1:] == addressed[1:]  # host and port


def _may_change(request: Request) -> bool:
    """Whether a page could change something with this request, or asks whether it may send another."""
    return request.method not in _SAFE_METHODS or (_asks(request) and _PUBLIC not in request.path)


def is_preflight(request: Request) -> bool:
    """A browser asks whether a page of an allowed origin may send a request. It sends no token with that."""
    return bool(request.cors) and _asks(request)


def _asks(request: Request) -> bool:
    return request.method == "OPTIONS" and b"access-control-request-method" in request.headers


async def answer_preflight(request: Request) -> None:
    await request.send({"type": "http.response.start", "status": 204, "headers": [*request.cors, *_PREFLIGHT]})
    await request.send({"type": "http.response.body", "body": b""})


def with_cors(send: Send, cors: Headers) -> Send:
    """`send` for an application that knows nothing of the allowed origins. CORS headers of its own give way."""

    async def send_with_cors(message: Message) -> None:
        if message["type"] == "http.response.start":
            own = [header for header in message["headers"] if not header[0].lower().startswith(_CORS_PREFIX)]
            message = {**message, "headers": [*own, *cors]}
        await send(message)

    return send_with_cors
