"""Which requests are admitted, and which paths are open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from hub.inbound.middleware.authentication import Authenticator, is_open, require
from hub.inbound.middleware.request import Request
from hub.server.asgi import MAX_HEADERS
from rolecall.errors import (
    BadHost,
    Forbidden,
    HeadTooLarge,
    NotLocal,
    NoTokens,
    Smuggled,
    ThroughProxy,
    TokenUnknown,
    Unauthenticated,
)
from rolecall.log import masked
from rolecall.model.principal import LOCAL, Kind, Principal, Right

CLIENT = Principal("alice", Kind.CLIENT)
LOCAL_ADDRESS = ("127.0.0.1", 8420)


class TokenTable:
    """Each token is its principal's name. `required`: there have been others."""

    def __init__(self, *known: Principal, required: bool = False) -> None:
        self.known = {principal.name: principal for principal in known}
        self.required = required or bool(known)

    @property
    def empty(self) -> bool:
        return not self.known

    problem = ""

    def find(self, token: str) -> Principal | None:
        return self.known.get(token)

    def ended(self, token: str) -> Principal | None:
        return None


def request(path: str = "/", method: str = "POST", *, addresses: Sequence[Any] | None = None, **headers: str) -> Request:
    """`addresses`: the client's and the server's."""

    async def never(*_: Any) -> Any:
        raise AssertionError("this request must be neither read nor answered")

    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    client, server = addresses or (LOCAL_ADDRESS, LOCAL_ADDRESS)
    scope = {"type": "http", "path": path, "method": method, "headers": pairs, "client": client, "server": server}
    return Request(scope, never, never)


def authenticator(*known: Principal, **options: Any) -> Authenticator:
    return Authenticator(TokenTable(*known), **{"max_head": 1_000, **options})


@pytest.mark.parametrize(
    "path",
    [
        "/.well-known/agent-card.json",
        "/.well-known/agent.json",
        "/agents/echo/.well-known/agent-card.json",
        "/agents/echo",
        "/agents/echo/",
        "/livez",
        "/readyz",
        "/health",
    ],
)
def test_cards_and_health_need_no_token(path: str) -> None:
    assert is_open(path, "GET")
    assert authenticator(CLIENT).admit(request(path, "GET")) is None


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/agents",
        "/agents/",
        "/agents//",
        "/agents/echo/a2a",
        "/agents/echo/v1/card",
        "/registry/agents",
        "/registry/agents/.well-known/",
        "/registry/tasks/.well-known/decision",
        "/v1/tasks/.well-known/x",
        "/tasks/.well-known/agent-card.json",
        "/dashboard/.well-known/",
        "/agents.well-known/",
        "/x/agents/echo/.well-known/agent.json",
        "/metrics",
        "/mcp",
        "/.well-known",
    ],
)
def test_all_other_paths_need_a_token(path: str) -> None:
    assert not is_open(path, "GET")
    with pytest.raises(Unauthenticated):
        authenticator(CLIENT).admit(request(path, "GET"))


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "get"])
@pytest.mark.parametrize("path", ["/agents/echo", "/agents/echo/"])
def test_whoever_calls_a_role_needs_a_token(path: str, method: str) -> None:
    assert not is_open(path, method)
    with pytest.raises(Unauthenticated):
        authenticator(CLIENT).admit(request(path, method))


@pytest.mark.parametrize("header", ["Bearer alice", "bearer alice", "BEARER alice"])
def test_a_valid_token_sets_the_principal(header: str) -> None:
    with_token = request(authorization=header)
    assert authenticator(CLIENT).admit(with_token) == CLIENT
    assert with_token.principal == CLIENT


@pytest.mark.parametrize(
    ("headers", "kind"),
    [
        ({}, Unauthenticated),
        ({"authorization": "alice"}, Unauthenticated),
        ({"authorization": "Basic alice"}, Unauthenticated),
        ({"authorization": "Bearer"}, Unauthenticated),
        ({"authorization": "Bearer  "}, Unauthenticated),
        ({"x_api_key": ""}, Unauthenticated),
        ({"authorization": "Bearer bob"}, TokenUnknown),
        ({"x_api_key": "bob"}, TokenUnknown),
    ],
)
def test_a_token_that_is_missing_or_wrong_is_refused_and_told_apart(
    headers: dict[str, str], kind: type[Unauthenticated]
) -> None:
    with pytest.raises(Unauthenticated) as refused:
        authenticator(CLIENT).admit(request(**headers))
    assert type(refused.value) is kind
    assert masked(refused.value.message) == refused.value.message


def test_without_tokens_every_request_is_local_unless_the_hub_is_exposed() -> None:
    assert authenticator().admit(request()) == LOCAL
    assert Authenticator(None, max_head=1_000).admit(request()) == LOCAL
    assert (authenticator().locked, authenticator(exposed=True).locked, authenticator(CLIENT).locked) == (False, True, True)
    with pytest.raises(Unauthenticated):
        authenticator(exposed=True).admit(request())


@pytest.mark.parametrize("path", ["/", "/livez", "/.well-known/agent-card.json"])
@pytest.mark.parametrize(
    "addresses",
    [
        (("192.0.2.7", 1), ("127.0.0.1", 8420)),
        (("127.0.0.1", 1), ("192.0.2.1", 8420)),
        (("::1", 1), ("2001:db8::1", 8420)),
        (None, ("/run/hub.sock", None)),
        (None, None),
    ],
)
def test_without_tokens_nothing_is_served_but_to_and_from_loopback(path: str, addresses: Sequence[Any]) -> None:
    with pytest.raises(NotLocal):
        authenticator().admit(request(path, "GET", addresses=addresses, host="localhost"))
    assert authenticator(CLIENT).admit(request(path, "GET", addresses=addresses, x_api_key="alice")) == CLIENT


@pytest.mark.parametrize("address", [("127.0.0.1", 1), ("127.9.9.9", 1), ("::1", 1, 0, 0)])
def test_without_tokens_loopback_is_served(address: Any) -> None:
    assert authenticator().admit(request(addresses=(address, address))) == LOCAL


@pytest.mark.parametrize(
    "name", ["Forwarded", "X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Anything", "X-Real-IP", "Via"]
)
@pytest.mark.parametrize("path", ["/", "/registry/agents", "/health", "/.well-known/agent-card.json"])
def test_without_tokens_nothing_is_served_through_a_proxy(path: str, name: str) -> None:
    header = {name.lower(): ""}
    for method in ("GET", "POST"):
        with pytest.raises(ThroughProxy):
            authenticator().admit(request(path, method, authorization="Bearer alice", **header))
    assert authenticator(CLIENT).admit(request(path, x_api_key="alice", **header)) == CLIENT


@pytest.mark.parametrize("path", ["/livez", "/readyz"])
def test_a_proxy_may_ask_whether_the_hub_is_alive(path: str) -> None:
    assert authenticator().admit(request(path, "GET", x_forwarded_for="192.0.2.7")) == LOCAL


def test_headers_that_are_like_those_of_proxies_are_no_sign_of_one() -> None:
    assert authenticator().admit(request(forward="1", viable="1", x_forward="1", x_real="1")) == LOCAL


def test_a_hub_that_has_had_tokens_refuses_everybody_and_says_so() -> None:
    left = Authenticator(TokenTable(required=True), max_head=1_000)
    assert left.locked
    assert left.admit(request("/health", "GET")) is None
    with pytest.raises(NoTokens):
        left.admit(request(x_api_key="alice"))


@pytest.mark.parametrize(
    ("host", "fits"),
    [
        ("hub.example", True),
        ("HUB.example:8420", True),
        ("[::1]:8420", True),
        ("other.example", False),
        ("hub.example.evil", False),
        ("hub.example:", False),
        ("", False),
        ("x@hub.example", False),
    ],
)
def test_a_hub_with_configured_hosts_refuses_others(host: str, fits: bool) -> None:
    named = authenticator(hosts=["Hub.Example", "[::1]"])
    if fits:
        assert named.admit(request(host=host)) == LOCAL
    else:
        with pytest.raises(BadHost):
            named.admit(request(host=host))


def test_a_body_with_two_lengths_is_refused_as_smuggling() -> None:
    with pytest.raises(Smuggled):
        authenticator().admit(request(transfer_encoding="chunked", content_length="3"))


def test_a_head_has_limits() -> None:
    assert authenticator(max_head=10).admit(request(abcde="12345")) == LOCAL
    with pytest.raises(HeadTooLarge):
        authenticator(max_head=10).admit(request(abcde="123456"))
    many = {f"h{number}": "" for number in range(MAX_HEADERS)}
    assert authenticator().admit(request(**many)) == LOCAL
    with pytest.raises(HeadTooLarge):
        authenticator().admit(request(**many, more=""))


def test_a_principal_may_do_what_its_kind_may() -> None:
    assert require(CLIENT, Right.CALL) is CLIENT
    with pytest.raises(Forbidden):
        require(CLIENT, Right.OPERATE)
    with pytest.raises(Unauthenticated):
        require(None, Right.READ)
