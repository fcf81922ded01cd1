"""Authentication and authorization of requests, and checks of their headers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import cast

from quart import request

from hub.inbound.middleware.origins import Origins, is_preflight
from hub.inbound.middleware.request import Request
from hub.ports.identity import Tokens
from hub.server.asgi import MAX_HEADERS, Scope
from rolecall.errors import (
    BadHost,
    Forbidden,
    HeadTooLarge,
    HubWide,
    NotLocal,
    NoTokens,
    Smuggled,
    ThroughProxy,
    TokensUnread,
    TokenUnknown,
    Unauthenticated,
)
from rolecall.model.ids import Caller, is_loopback
from rolecall.model.principal import LOCAL, Principal, Right

_KEY = "rolecall.principal"
_OPEN_PATHS = ("/.well-known/", "/livez", "/readyz", "/health")
_ROLES = "/agents/"
_READING = ("GET", "HEAD")
_PROBES = ("/livez", "/readyz")
"""They say nothing about workers or tasks, and a load balancer asks them."""
_BEARER = "bearer "
_PROXY_HEADERS = frozenset({b"forwarded", b"via", b"x-real-ip"})
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^\[\]:@/]+)(:[0-9]{1,5})?")


class Authenticator:
    """`tokens` None: every request comes from the one local caller. `hosts`: accepted Host headers; empty: any. `origins`:
    whose pages may do what. `exposed`: other machines can reach the hub, so a token is always needed. `max_head`: bytes of all
    headers.
    """

    def __init__(
        self,
        tokens: Tokens | None,
        hosts: Sequence[str] = (),
        origins: Origins | None = None,
        *,
        max_head: int,
        exposed: bool = False,
    ) -> None:
        self._tokens = tokens
        self._origins = origins or Origins()
        self._max_head = max_head
        self._exposed = exposed
        self._hosts = frozenset(host.lower() for host in hosts)

    def admit(self, request: Request) -> Principal | None:
        """Sets the request's principal; None: no valid token, on an open path. Unauthenticated, TokenUnknown, NoTokens,
        TokensUnread, NotLocal, ThroughProxy, BadHost, CrossSite, Smuggled, HeadTooLarge.
        """
        self._check_headers(request)
        found = request.principal = request.scope[_KEY] = self._find(request)
        if found is None and not is_preflight(request):
            self._check_open(request)
        return found

    def _check_open(self, request: Request) -> None:
        """A role's card is of the token's workspace, so with a wrong token there is no right answer."""
        token = _token(request.headers)
        if is_open(request.path, request.method) and not (token and request.path.startswith(_ROLES)):
            return
        tokens = self._tokens
        if tokens is not None and tokens.problem:
            raise TokensUnread
        if tokens is not None and tokens.empty:
            raise NoTokens
        if not token:
            raise Unauthenticated
        ended = tokens.ended(token) if tokens is not None else None
        raise TokenUnknown(ended.token if ended is not None else "")

    @property
    def locked(self) -> bool:
        """A token is needed."""
        return self._tokens is not None and (self._exposed or self._tokens.required)

    def _find(self, request: Request) -> Principal | None:
        token = _token(request.headers)
        found = self._tokens.find(token) if token is not None and self._tokens is not None else None
        if found is not None or self.locked:
            return found
        if not _is_local(request.scope):
            raise NotLocal
        if _came_by_proxy(request.headers) and request.path not in _PROBES:
            raise ThroughProxy
        return LOCAL

    def _check_headers(self, request: Request) -> None:
        pairs, headers = request.scope["headers"], request.headers
        if len(pairs) > MAX_HEADERS or sum(map(len, chain.from_iterable(pairs))) > self._max_head:
            raise HeadTooLarge(MAX_HEADERS, self._max_head)
        if b"transfer-encoding" in headers and b"content-length" in headers:
            raise Smuggled
        if self._hosts and _host_in(headers.get(b"host") or headers.get(b":authority") or b"") not in self._hosts:
            raise BadHost
        if b"origin" in headers or b"sec-fetch-site" in headers:
            self._origins.admit(request)


def _is_local(scope: Scope) -> bool:
    """Whether the request came from this machine, to an address that only this machine can reach. A server that is not the
    hub's own may listen on other addresses than the hub was told.
    """
    client, server = scope.get("client") or ("",), scope.get("server") or ("",)
    return _is_loopback(client[0]) and _is_loopback(server[0])


def _came_by_proxy(headers: dict[bytes, bytes]) -> bool:
    """Whoever is behind a proxy on this machine may be anybody. A proxy that adds no header cannot be recognised."""
    return not _PROXY_HEADERS.isdisjoint(headers) or b"x-forwarded-" in b" ".join(headers)


_is_loopback = lru_cache(maxsize=256)(is_loopback)


@lru_cache(maxsize=256)
def _host_in(value: bytes) -> str | None:
    """The name without the port; None: not a valid Host header."""
    found = _HOST.fullmatch(value[:512].decode("latin-1").lower())
    return found[1] if found is not None else None


def is_open(path: str, method: str) -> bool:
    """Cards and health need no token."""
    if path.startswith(_OPEN_PATHS):
        return True
    return path.startswith("/agents/") and ("/.well-known/" in path or reads_card(path, method))


def reads_card(path: str, method: str) -> bool:
    """A role's own address takes calls with POST, and answers the role's card otherwise."""
    return method in _READING and is_role_address(path)


def is_role_address(path: str) -> bool:
    """`/agents/{role}`, also with a slash at its end."""
    name = path.removeprefix(_ROLES).removesuffix("/") if path.startswith(_ROLES) else ""
    return bool(name) and "/" not in name


def require(principal: Principal | None, right: Right) -> Principal:
    """Unauthenticated; Forbidden: the principal lacks the right."""
    if principal is None:
        raise Unauthenticated
    if not principal.may(right):
        raise Forbidden(principal.kind.value, right.value)
    return principal


def caller(right: Right = Right.READ) -> Caller:
    """The caller of the current Quart request. Unauthenticated, Forbidden."""
    return require(_principal(), right).caller


def may(right: Right) -> bool:
    """Whether the current Quart request has that right."""
    found = _principal()
    return found is not None and found.may(right)


def operators_view() -> None:
    """Data about all workspaces is only for `default`, the workspace of the hub's operator. Unauthenticated, HubWide."""
    caller()
    if not sees_all():
        raise HubWide


def sees_all() -> bool:
    """Whether the current Quart request may read data about all workspaces."""
    return may(Right.READ) and viewer().workspace == LOCAL.workspace


def holder() -> Principal:
    return require(_principal(), Right.READ)


def enroller() -> Principal:
    return require(_principal(), Right.ENROL)


def token() -> str:
    """The public id of the current Quart request's token. Empty: none, or one that never ends."""
    found = _principal()
    return found.token if found is not None else ""


def viewer() -> Caller:
    """The caller on an open path: a request without a token reads the default workspace."""
    found = _principal()
    return found.caller if found is not None else Caller(LOCAL.workspace, "")


def principal_of(scope: Scope) -> Principal | None:
    """Of a request that was admitted. None: it has none, or was refused."""
    found: Principal | None = scope.get(_KEY)
    return found


def own_scope() -> Scope:
    """The scope of the current Quart request."""
    return cast(Scope, request.scope)


def _principal() -> Principal | None:
    """The principal of the current Quart request."""
    return principal_of(own_scope())


def _token(headers: dict[bytes, bytes]) -> str | None:
    value = headers.get(b"authorization")
    if value is not None:
        text = value.decode("latin-1")
        return text[len(_BEARER) :].strip() if text[: len(_BEARER)].lower() == _BEARER else None
    key = headers.get(b"x-api-key")
    return key.decode("latin-1").strip() if key is not None else None
