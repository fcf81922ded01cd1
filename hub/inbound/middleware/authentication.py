"""The gate: who is asking, whether he may, and whether the request came the way that it should."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import cast

from quart import request

from hub.inbound.middleware.request import Request
from hub.ports.tokens import Tokens
from hub.server.asgi import MAX_HEADERS, Scope
from rolecall.errors import BadHost, CrossSite, Forbidden, HeadTooLarge, HubWide, Smuggled, Unauthenticated
from rolecall.model.ids import Caller
from rolecall.model.principal import LOCAL, Principal, Right

_KEY = "rolecall.principal"
_OPEN = ("/.well-known/", "/livez", "/readyz", "/health")
_BEARER = "bearer "
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_OWN_SITES = (b"same-origin", b"same-site", b"none")
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^\[\]:@/]+)(:[0-9]{1,5})?")


class Authenticator:
    """`tokens` None: there are none, and everybody is the one local caller. `hosts`: what we may be called; empty: anything.
    `exposed`: others than this machine get here, so that without tokens nobody gets in. `max_head`: bytes of all headers.
    """

    def __init__(self, tokens: Tokens | None, hosts: Sequence[str] = (), *, max_head: int, exposed: bool = False) -> None:
        self._tokens = tokens
        self._max_head = max_head
        self._exposed = exposed
        self._hosts = frozenset(host.lower() for host in hosts)

    def admit(self, request: Request) -> Principal | None:
        """Note who is asking; None: nobody known, at what is open to all. Unauthenticated, BadHost, CrossSite, Smuggled,
        HeadTooLarge.
        """
        self._check_way(request)
        found = request.who = request.scope[_KEY] = self._who(request.headers)
        if found is None and not is_open(request.path):
            raise Unauthenticated
        return found

    @property
    def locked(self) -> bool:
        """A token is needed."""
        return self._tokens is not None and (self._exposed or not self._tokens.empty)

    def _who(self, said: dict[bytes, bytes]) -> Principal | None:
        token = _token(said)
        found = self._tokens.find(token) if token is not None and self._tokens is not None else None
        return found if found is not None or self.locked else LOCAL

    def _check_way(self, request: Request) -> None:
        headers, said = request.scope["headers"], request.headers
        if len(headers) > MAX_HEADERS or sum(map(len, chain.from_iterable(headers))) > self._max_head:
            raise HeadTooLarge(MAX_HEADERS, self._max_head)
        if b"transfer-encoding" in said and b"content-length" in said:
            raise Smuggled
        if self._hosts and _host_in(said.get(b"host") or said.get(b":authority") or b"") not in self._hosts:
            raise BadHost
        if request.method not in _SAFE:
            site = said.get(b"sec-fetch-site")
            if site is not None and site not in _OWN_SITES:
                raise CrossSite


@lru_cache(maxsize=256)
def _host_in(said: bytes) -> str | None:
    """The name without the port; None: that is no Host."""
    found = _HOST.fullmatch(said[:512].decode("latin-1").lower())
    return found[1] if found is not None else None


def is_open(path: str) -> bool:
    """Cards and health: for everybody."""
    if path.startswith(_OPEN):
        return True
    return path.startswith("/agents/") and "/.well-known/" in path


def holder_of(who: Principal | None, right: Right) -> Principal:
    """Forbidden: he is known, and this is not his to do."""
    if who is None:
        raise Unauthenticated
    if not who.may(right):
        raise Forbidden(who.kind.value, right.value)
    return who


def caller(right: Right = Right.READ) -> Caller:
    """For pages: whose request this is."""
    return holder_of(_who(), right).caller


def may(right: Right) -> bool:
    """For pages that show more to some."""
    found = _who()
    return found is not None and found.may(right)


def operators_view() -> None:
    """What is about all workspaces at once is for `default`, the workspace of who runs the hub. Unauthenticated, HubWide."""
    caller()
    if not sees_all():
        raise HubWide


def sees_all() -> bool:
    """Whether what is about all workspaces at once is his to see."""
    return may(Right.READ) and viewer().workspace == LOCAL.workspace


def enroller() -> Principal:
    return holder_of(_who(), Right.ENROL)


def viewer() -> Caller:
    """For pages that are open: whoever shows no token sees the default workspace."""
    found = _who()
    return found.caller if found is not None else Caller(LOCAL.workspace, "")


def _who() -> Principal | None:
    """Who asks for the page that is being made."""
    found: Principal | None = cast(Scope, request.scope)[_KEY]
    return found


def _token(said: dict[bytes, bytes]) -> str | None:
    shown = said.get(b"authorization")
    if shown is not None:
        text = shown.decode("latin-1")
        return text[len(_BEARER) :].strip() if text[: len(_BEARER)].lower() == _BEARER else None
    key = said.get(b"x-api-key")
    return key.decode("latin-1").strip() if key is not None else None
